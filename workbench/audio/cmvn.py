"""Mean and variance normalisation with fixed vectors, and readers of the files in which checkpoints store them.

FunASR's `am.mvn` is a Kaldi nnet in text form: a `<Splice>` whose block `[ 0 ]` is not a vector, then `<AddShift>` and
`<Rescale>`. The reader finds vectors by their tags; if it counted blocks, it would take the first for the shift.

FireRedASR's `cmvn.ark` is a matrix as Kaldi's `compute-cmvn-stats` writes it. The first row holds the sum of every
feature and the count of frames, the second row the sums of squares.
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.core.errors import BadInput

_MAX_FILE_BYTES = 16 << 20  # a real file has about ten thousand
_MIN_VARIANCE = 1e-20  # FireRedASR's own floor
_FLOATS = {b"FM ": "<f4", b"DM ": "<f8"}  # Kaldi's matrices, by the token at their head


@dataclass(frozen=True, eq=False)
class Cmvn:
    """The normalisation y = (x + shift) * scale, with shift = -mean and scale = 1 / deviation.

    Both vectors are as wide as a feature frame.
    """

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
        """Returns the normalised features, float32 [frames, width]; raises `BadInput` for another width."""
        if features.shape[-1] != self.width:
            raise BadInput(f"CMVN of {self.width} values does not fit features of width {features.shape[-1]}")
        normalised: np.ndarray = (features + self.shift) * self.scale
        return normalised


def read_am_mvn(path: str | Path) -> Cmvn:
    """Returns the two vectors of an `am.mvn` file; raises `BadInput` that names the file and the fault."""
    path = Path(path)
    name = path.name
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise BadInput(f"{name} is far too large for a CMVN file in text form")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"the CMVN file {name} cannot be read: {reason}") from error
    shift, scale = (_vector(text, tag, name) for tag in ("AddShift", "Rescale"))
    if len(shift) != len(scale):
        raise BadInput(
            f"{name} has {len(shift)} values after <AddShift> and {len(scale)} after <Rescale>; expected equal numbers"
        )
    if not (scale > 0).all():
        first = int(np.argmin(scale > 0))
        raise BadInput(f"{name} scales feature {first} by {scale[first]:g} in <Rescale>; a positive number is expected")
    return Cmvn(shift, scale)


def _vector(text: str, tag: str, name: str) -> np.ndarray:
    """Returns the values in the brackets after `<tag> rows columns`; raises `BadInput` if their number is another."""
    found = re.search(rf"<{tag}>\s+(\d{{1,9}})\s+(\d{{1,9}})\s*(?:<LearnRateCoef>\s+\S+\s*)?\[([^\]\[<]*)\]", text)
    if found is None:
        missing = "has no" if f"<{tag}>" not in text else "has no complete vector in brackets after"
        raise BadInput(f"{name} {missing} <{tag}>, which a CMVN file in Kaldi's text form has")
    stated, words = int(found[1]), found[3].split()
    if len(words) != stated or found[2] != found[1]:
        raise BadInput(f"{name} states <{tag}> {found[1]} {found[2]} and holds {len(words)} values; expected {stated}")
    try:
        values = np.array([float(word) for word in words])
    except ValueError as error:
        raise BadInput(f"{name} has a value that is not a number after <{tag}>: {error}") from error
    if not (np.abs(values) <= np.finfo(np.float32).max).all():
        raise BadInput(f"{name} has a value that is not finite after <{tag}>")
    return values.astype(np.float32)


def read_cmvn_ark(path: str | Path) -> Cmvn:
    """Returns the normalisation computed from the statistics in a `cmvn.ark`.

    The mean is m = sum / count; the variance is sum of squares / count - m^2, at least 1e-20. The matrix may be in
    Kaldi's binary form (float or double) or text form, with or without a key before it. `BadInput` names the file and
    the fault.
    """
    path = Path(path)
    name = path.name
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise BadInput(f"{name} is far too large for CMVN statistics")
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"the CMVN file {name} cannot be read: {error.strerror}") from error
    statistics = _matrix(content, name)
    if statistics.shape[0] != 2 or statistics.shape[1] < 2:
        raise BadInput(f"{name} holds a matrix of shape {statistics.shape}; CMVN statistics are (2, features + 1)")
    if not np.isfinite(statistics).all():
        raise BadInput(f"{name} holds a value that is not finite; CMVN statistics are sums")
    count = statistics[0, -1]
    if count < 1:
        raise BadInput(f"{name} states that its sums are over {count:g} frames; expected at least 1")
    means = statistics[0, :-1] / count
    squares = statistics[1, :-1] / count
    largest = np.finfo(np.float32).max
    if max(np.abs(means).max(), np.abs(squares).max()) > largest:
        raise BadInput(f"{name} holds sums too large for the {count:g} frames that it states")
    variances = np.maximum(squares - means**2, _MIN_VARIANCE)
    return Cmvn((-means).astype(np.float32), (1 / np.sqrt(variances)).astype(np.float32))


def _matrix(content: bytes, name: str) -> np.ndarray:
    """Returns the one matrix of a Kaldi archive, float64 [rows, columns]."""
    start = re.match(rb"(?:[^\s\x00]+ )?\x00B", content)
    if start is None:
        return _text_matrix(content, name)
    kind = content[start.end() : start.end() + 3]
    if kind not in _FLOATS:
        raise BadInput(f"{name} holds {kind!r} where a Kaldi matrix of floats has FM or DM")
    at = start.end() + 3
    header = content[at : at + 10]
    if len(header) < 10 or header[0] != 4 or header[5] != 4:
        raise BadInput(f"{name} is damaged: rows and columns of its Kaldi matrix cannot be read")
    rows, columns = struct.unpack("<xixi", header)
    size = np.dtype(_FLOATS[kind]).itemsize
    stated, found = rows * columns * size, len(content) - at - 10
    if rows < 0 or columns < 0 or stated != found:
        raise BadInput(
            f"{name} states a Kaldi matrix of {rows} rows and {columns} columns and holds {found} bytes of values; "
            f"expected {max(stated, 0)}"
        )
    values = np.frombuffer(content, _FLOATS[kind], offset=at + 10).astype(np.float64)
    return values.reshape(rows, columns)


def _text_matrix(content: bytes, name: str) -> np.ndarray:
    found = re.fullmatch(rb"\s*(?:[^\s\[]+\s+)?\[([^\[\]]*)\]\s*", content)
    if found is None:
        raise BadInput(f"{name} holds no Kaldi matrix, neither in binary form nor in text form between brackets")
    rows = [line.split() for line in found[1].splitlines() if line.strip()]
    if len({len(row) for row in rows}) > 1:
        raise BadInput(f"{name} has rows of {len(rows[0])} values and rows of other lengths; expected equal lengths")
    try:
        return np.array([[float(word) for word in row] for row in rows]).reshape(len(rows), -1 if rows else 0)
    except ValueError as error:
        raise BadInput(f"{name} has a value that is not a number: {error}") from error
