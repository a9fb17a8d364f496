"""The CMVN vectors of a GGUF file: y = (x + cmvn.shift) * cmvn.scale.

FunASR's export script for SenseVoice reads the first two bracketed blocks of `am.mvn` as the vectors. The first block
is the `[ 0 ]` of `<Splice>`, so `cmvn.shift` then has one element, `cmvn.scale` holds the shift, and the scale is lost.
The C++ runtime uses neither.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workbench.audio.cmvn import Cmvn, read_am_mvn, read_cmvn_ark
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile

SHIFT, SCALE = "cmvn.shift", "cmvn.scale"
_MAY_BE_UNUSABLE = ("sensevoice-small",)


def read_cmvn(file: GgufFile, path: Path | None = None) -> tuple[Cmvn | None, str | None]:
    """Returns the CMVN of a file, and a note for the reader of transcripts if the file has vectors that cannot be used.

    Args:
        path: the `am.mvn` or `cmvn.ark` that the unpacked configuration names; it takes precedence if it is not None.

    Returns (None, None) for a file without CMVN. Raises `BadInput` for invalid vectors, except for SenseVoice: its
    published files may have invalid vectors, which are left out, and the note says so.
    """
    if path is not None:
        return (read_cmvn_ark if path.suffix == ".ark" else read_am_mvn)(path), None
    if SHIFT not in file.tensors and SCALE not in file.tensors:
        return None, None
    shift, scale = file.array(SHIFT), file.array(SCALE)
    if file.architecture in _MAY_BE_UNUSABLE and (shift.size == 1 < scale.size or not (scale > 0).all()):
        return None, (
            f"{file.name} carries no usable CMVN: its scale is not positive or its shift has one value, as in files of "
            "FunASR's own export script; the features are not normalised, and recognition may be worse"
        )
    try:
        return Cmvn(np.array(shift), np.array(scale)), None
    except BadInput as error:
        raise BadInput(f"tensors {SHIFT} and {SCALE} in {file.name} cannot be used: {error}") from error


def am_mvn(cmvn: Cmvn) -> str:
    """Returns the vectors as the text of an `am.mvn` file; reading it gives the same float32 values."""
    lines = ["<Nnet>", f"<Splice> {cmvn.width} {cmvn.width}", "[ 0 ]"]
    for tag, values in (("AddShift", cmvn.shift), ("Rescale", cmvn.scale)):
        numbers = " ".join(f"{value:.9g}" for value in values.tolist())
        lines += [f"<{tag}> {cmvn.width} {cmvn.width}", f"<LearnRateCoef> 0 [ {numbers} ]"]
    return "\n".join([*lines, "</Nnet>", ""])
