"""An embedding from a user: one vector for each token, ready for a language model of its width."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from workbench.core.errors import BadInput
from workbench.embeddings.content import StoredTensor
from workbench.embeddings.floats import EXPECTED, FLOATS, as_float32
from workbench.embeddings.payload import check_size

SHAPES = "(tokens, hidden) or (1, tokens, hidden)"


@dataclass(frozen=True, eq=False)
class Embedding:
    """The vectors that replace one placeholder in a prompt."""

    values: np.ndarray  # [tokens, hidden], float32, C-contiguous, finite
    name: str  # for display
    dtype: str  # as stored: float16, bfloat16, float32, float64, float8_e4m3fn or float8_e5m2
    shape: tuple[int, ...]  # as stored
    digest: str  # 16 hexadecimal digits of `values`, independent of how they were stored
    notes: tuple[str, ...] = ()  # changes to the stored values

    @property
    def tokens(self) -> int:
        """The number of positions that it takes in a prompt."""
        return int(self.values.shape[0])

    @property
    def hidden(self) -> int:
        """The width of its vectors."""
        return int(self.values.shape[1])


def as_embedding(stored: StoredTensor, name: str, where: str, notes: tuple[str, ...] = ()) -> Embedding:
    """Returns the embedding in a tensor of a file. Type, shape and size are checked before the values are read.

    `where` names it in messages. Raises `BadInput` for any other type or shape, and for values that are not finite or
    beyond float32.
    """
    if stored.dtype not in FLOATS:
        raise BadInput(f"{where} holds {stored.dtype}; expected floating-point numbers: {EXPECTED}")
    rows = _rows(stored.shape, where)
    check_size(stored.bytes, where)
    values = stored.read().reshape(rows)
    converted = as_float32(values, stored.dtype)
    _check_finite(converted, values, stored.dtype, where)
    all_notes = [*notes]
    if len(stored.shape) == 3:
        all_notes.append("a leading dimension of 1 was dropped")
    if stored.dtype == "float64":
        all_notes.append("float64 is rounded to float32")
    return Embedding(converted, name, stored.dtype, stored.shape, _digest(converted), tuple(all_notes))


def embedding_of(values: np.ndarray, name: str = "embedding") -> Embedding:
    """Returns the embedding in an array [tokens, hidden] or [1, tokens, hidden] of floating-point numbers, as a copy.

    Raises `BadInput` as `as_embedding` does.
    """
    dtype = values.dtype.name
    if FLOATS.get(dtype, "").startswith("u"):  # a type of the package ml_dtypes, whose bits `as_float32` expects
        values = np.ascontiguousarray(values).view(FLOATS[dtype])
    stored = StoredTensor(values.shape, dtype, values.nbytes, lambda: values)
    return as_embedding(stored, name, name)


def _rows(shape: tuple[int, ...], where: str) -> tuple[int, int]:
    """Returns the shape without a batch axis of 1."""
    if len(shape) == 3 and shape[0] > 1:
        raise BadInput(f"{where} has the shape {shape}, a batch of {shape[0]}; expected {SHAPES}, one in each file")
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] != 1):
        raise BadInput(f"{where} has the shape {shape}; expected {SHAPES}")
    tokens, hidden = shape[-2:]
    if not tokens or not hidden:
        raise BadInput(f"{where} has the shape {shape}, which is empty; expected at least one token and one channel")
    return tokens, hidden


def _check_finite(converted: np.ndarray, values: np.ndarray, dtype: str, where: str) -> None:
    wrong = ~np.isfinite(converted)
    if not wrong.any():
        return
    beyond = wrong & np.isfinite(values) if dtype == "float64" else np.zeros_like(wrong)
    problem, count = "NaN or infinite", int(wrong.sum())
    if beyond.all(where=wrong):
        problem = f"beyond the range of float32, {np.finfo(np.float32).max:.3g}"
    elif beyond.any():
        problem = f"NaN, infinite or beyond the range of float32, {np.finfo(np.float32).max:.3g}"
    row, column = (int(each) for each in np.unravel_index(int(wrong.argmax()), wrong.shape))
    first = values[row, column] if dtype == "float64" else converted[row, column]
    counted = f"{count} value that is" if count == 1 else f"{count} values that are"
    raise BadInput(
        f"{where} has {counted} {problem}, the first ({first:.3g}) at row {row}, column {column}, counted from 0; "
        "expected finite numbers"
    )


def _digest(values: np.ndarray) -> str:
    digest = hashlib.sha256(np.array(values.shape, dtype="<i8").tobytes())
    digest.update(np.ascontiguousarray(values, dtype="<f4").data)
    return digest.hexdigest()[:16]
