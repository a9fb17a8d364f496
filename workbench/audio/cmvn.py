"""Mean and variance normalisation with fixed vectors, and the `am.mvn` file that FunASR checkpoints keep them in.

The file is a Kaldi nnet in text form: a `<Splice>` whose block `[ 0 ]` is no vector, then `<AddShift>` and `<Rescale>`.
Vectors are found by their tags; blocks counted by position would mistake the first for the shift.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.errors import BadInput

_LARGEST_FILE = 16 << 20  # bytes; a real one has about ten thousand


@dataclass(frozen=True, eq=False)
class Cmvn:
    """y = (x + shift) * scale, both vectors as wide as a feature frame: minus the mean, and one over the deviation."""

    shift: np.ndarray  # float32 [width]
    scale: np.ndarray  # float32 [width], all positive

    def __post_init__(self) -> None:
        if self.shift.ndim != 1 or self.shift.shape != self.scale.shape:
            raise BadInput(
                f"CMVN shift and scale are two equally long vectors, not {self.shift.shape} and {self.scale.shape}"
            )
        if not np.isfinite(self.shift).all() or not np.isfinite(self.scale).all() or not (self.scale > 0).all():
            raise BadInput("CMVN needs finite values and a positive scale for every feature")

    @property
    def width(self) -> int:
        return len(self.shift)

    def apply(self, features: np.ndarray) -> np.ndarray:
        """The normalised features, float32 [frames, width]; `BadInput` if their width is another."""
        if features.shape[-1] != self.width:
            raise BadInput(f"CMVN of {self.width} values does not fit features of width {features.shape[-1]}")
        normalised: np.ndarray = (features + self.shift) * self.scale
        return normalised


def read_am_mvn(path: str | Path) -> Cmvn:
    """The two vectors of an `am.mvn` file; `BadInput` names the file and what is wrong with it."""
    path = Path(path)
    name = path.name
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise BadInput(f"{name} is far too large for a CMVN file in text form")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"the CMVN file {name} cannot be read: {reason}") from error
    shift, scale = (_vector(text, tag, name) for tag in ("AddShift", "Rescale"))
    if len(shift) != len(scale):
        raise BadInput(
            f"{name} has {len(shift)} values after <AddShift> and {len(scale)} after <Rescale>; expected as many"
        )
    if not (scale > 0).all():
        first = int(np.argmin(scale > 0))
        raise BadInput(f"{name} scales feature {first} by {scale[first]:g} in <Rescale>; a positive number is expected")
    return Cmvn(shift, scale)


def _vector(text: str, tag: str, name: str) -> np.ndarray:
    """The values in the brackets that follow `<tag> rows columns`, as many as the tag states."""
    found = re.search(rf"<{tag}>\s+(\d+)\s+(\d+)\s*(?:<LearnRateCoef>\s+\S+\s*)?\[([^\]\[<]*)\]", text)
    if found is None:
        missing = "has no" if f"<{tag}>" not in text else "has no complete vector in brackets after"
        raise BadInput(f"{name} {missing} <{tag}>, which a CMVN file in Kaldi's text form has")
    stated, words = int(found[1]), found[3].split()
    if len(words) != stated or found[2] != found[1]:
        raise BadInput(f"{name} states <{tag}> {found[1]} {found[2]} and holds {len(words)} values; expected {stated}")
    try:
        values = np.array([float(word) for word in words])
    except ValueError as error:
        raise BadInput(f"{name} has a value that is no number after <{tag}>: {error}") from error
    if not (np.abs(values) <= np.finfo(np.float32).max).all():
        raise BadInput(f"{name} has a value that is not finite after <{tag}>")
    return values.astype(np.float32)
