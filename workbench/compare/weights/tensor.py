"""Compares a tensor of a weight file with the same tensor of the checkpoint, and recognises what was done to it.

A stored value may differ by the rounding of its type, relative to the largest value of its block. A cause is named only
if it predicts every value of the tensor to within that rounding: a factor, another tensor, other rows, and so on.
Otherwise only the difference is stated. This file knows arrays and types; it opens no file and knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.compare.guesses.guess import in_order, is_range, listed, relative_l2
from workbench.core.phrases import counted, dimensions
from workbench.formats.gguf_types import BY_NAME

Kind = Literal[
    "zero", "factor", "constant", "transposed", "other tensor", "rows", "columns", "values", "missing", "shape"
]
OtherTensors = Callable[[], Iterable[tuple[str, np.ndarray]]]
"""Returns the checkpoint's other tensors of the same shape, by name."""

SHARES = {
    "F64": 2.0**-20,
    "F32": 2.0**-20,
    "F16": 2.0**-10,
    "BF16": 2.0**-7,
    "Q8": 0.01,
    "Q6": 0.08,
    "Q5": 0.14,
    "Q4": 0.28,
    "IQ4": 0.28,
    "MXFP4": 0.4,
    "Q3": 0.5,
}
"""The largest rounding of a value, as a share of the largest value of its block, by the beginning of the type."""
PRECISE = ("F64", "F32", "F16", "BF16", "Q8")  # beginnings of types that round each value well
FEW_BITS = 0.9  # largest relative L2 of a row in a type that is not in `SHARES`, such as Q2_K
NOISE = {"IQ3_S": 0.35, "IQ3_XXS": 0.35, "Q2_K": 0.42, "IQ2_S": 0.45, "IQ2_XS": 0.48, "IQ2_XXS": 0.58}
"""The largest relative L2 of a tensor in a type of few bits under which a cause is named.

ggml's quantisers change weights with the tails of Student's t with 4 degrees of freedom by less, also with an
importance matrix.
"""
TERNARY, TERNARY_SHARE = "TQ", 0.505  # the same as a share like those in `SHARES`: these types round to -d, 0 or d
_LEFT = 0.2  # largest cosine of the checkpoint's values with what a cause leaves of the file's, in types of few bits
_NEGATIVE = (-1.2, -0.7)  # the factors that types of few bits make of -1
MIN_POSITIVE = {"F16": 2.0**-24, "F32": 0.0, "F64": 0.0, "BF16": 0.0}
MIN_BLOCK_SCALE = 2.0**-17  # of a block, whose scale is in half precision, times its 127 steps
# An importance matrix makes single blocks of 3 to 6 bits much worse than their share in `SHARES`. So in these types a
# factor must be clear, and a difference without a cause must be large.
CLEAR_FACTOR = 0.4  # least distance from 1
LARGE, LARGE_IN_FEW_BITS = 0.5, 1.2  # least relative L2 of a tensor
MAX_ROWS = 4096  # most rows that are looked for among all rows
_CHUNK = 256  # rows that are looked for at a time


@dataclass(frozen=True)
class WeightDifference:
    """A tensor of a weight file that differs from the checkpoint's, and how."""

    tensor: str
    kind: Kind
    sentence: str  # a predicate with the tensor as its subject
    other: str = ""  # the tensor that it holds instead


def differs(original: np.ndarray, stored: np.ndarray, type_name: str) -> np.ndarray:
    """Returns which blocks differ by more than rounding, bool [rows, blocks].

    Args:
        original: the checkpoint's values, or a prediction, [rows, values].
        stored: the file's, dequantised, in the same shape.
        type_name: the type in the file, such as `Q8_0`. In a type without blocks, each value is a block, and its
            rounding is relative to the largest value of its row.
    """
    share = _share(type_name)
    if share is None:
        with np.errstate(all="ignore"):
            size, difference = (np.linalg.norm(each, axis=1, keepdims=True) for each in (original, stored - original))
            wrong: np.ndarray = ~np.asarray(difference <= FEW_BITS * size + MIN_BLOCK_SCALE * original.shape[1] ** 0.5)
        if type_name.startswith(TERNARY):
            wrong &= _far_from_ternary(original, stored, type_name)
        return wrong
    return _over_share(original, stored, type_name, share)


def _far_from_ternary(original: np.ndarray, stored: np.ndarray, type_name: str) -> np.ndarray:
    """Returns which rows of a ternary type hold a value that is not the nearest of three, bool [rows, 1]."""
    return np.asarray(_over_share(original, stored, type_name, TERNARY_SHARE).any(axis=1, keepdims=True))


def _over_share(original: np.ndarray, stored: np.ndarray, type_name: str, share: float) -> np.ndarray:
    """Returns in which blocks a difference exceeds a share of the largest value, bool [rows, blocks]."""
    width = BY_NAME[type_name].block
    with np.errstate(all="ignore"):
        if original.shape[1] % width or width == 1:
            largest, difference = np.abs(original).max(axis=1, initial=0.0, keepdims=True), np.abs(stored - original)
        else:
            largest, difference = (
                np.abs(each).reshape(len(original), -1, width).max(axis=2) for each in (original, stored - original)
            )
        return ~np.asarray(difference <= share * largest + MIN_POSITIVE.get(type_name, MIN_BLOCK_SCALE))


def weight_difference(
    name: str, original: np.ndarray, stored: np.ndarray, type_name: str, others: OtherTensors
) -> WeightDifference | None:
    """Returns how a tensor of the file differs from the checkpoint's; None if it differs by rounding only.

    Args:
        original, stored: the whole tensor, in its shape.
    """
    if original.shape != stored.shape:
        return _of_another_shape(name, original, stored, type_name)
    checkpoint_rows, file_rows = _rows(original), _rows(stored)
    wrong = differs(checkpoint_rows, file_rows, type_name)
    if not wrong.any():
        return None
    finite = np.isfinite(file_rows)
    if not finite.all():
        count = counted(int((~finite).sum()), "infinite or NaN value")
        return WeightDifference(name, "values", f"holds {count}")
    error = relative_l2(checkpoint_rows, file_rows)
    changes = [*_changes_of_tensor(name, original, checkpoint_rows, file_rows, type_name, others)] or [
        *_changes_of_parts(name, checkpoint_rows, file_rows, wrong, type_name)
    ]
    if len(changes) == 1:
        return changes[0]
    if changes:  # they predict the same values
        sentence = " or ".join(each.sentence for each in changes[:3])
        return WeightDifference(name, changes[0].kind, sentence, changes[0].other)
    if error < least_error(type_name):
        return None
    rows = int(wrong.any(axis=1).sum())
    rows_clause = f" in {counted(rows, 'row')} of {len(checkpoint_rows)}" if 1 < len(checkpoint_rows) != rows else ""
    return WeightDifference(
        name, "values", f"differs from the checkpoint's by a relative L2 of {error:.2g}{rows_clause}"
    )


def fits(expected: np.ndarray, stored: np.ndarray, type_name: str, original: np.ndarray) -> bool:
    """Returns whether a prediction gives all values of the file, [rows, values], to within rounding.

    In a type of few bits, a row of noise may hide another fault. So all values together must be as near as the type
    allows, and what the prediction leaves must not resemble the checkpoint's values in the same places, `original`.
    """
    if type_name.startswith(TERNARY):
        return not _far_from_ternary(expected, stored, type_name).any()
    if differs(expected, stored, type_name).any():
        return False
    if not has_few_bits(type_name) or not expected.any():
        return True
    if not relative_l2(expected, stored) <= NOISE.get(type_name, 0.0):
        return False
    rest, other = (_without(each, expected) for each in (stored, original))
    if not other.any():
        return True
    return abs(float(np.vdot(rest, other))) <= _LEFT * float(np.linalg.norm(rest) * np.linalg.norm(other))


def _without(values: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Returns the part of the values that is orthogonal to the prediction; zero if they are its multiple."""
    size = float(np.vdot(expected, expected))
    rest: np.ndarray = values - np.float32(float(np.vdot(expected, values)) / size if size else 0.0) * expected
    return rest if np.linalg.norm(rest) > 1e-3 * np.linalg.norm(values) else np.zeros_like(values)


def has_few_bits(type_name: str) -> bool:
    """Returns whether a type, such as `Q2_K`, rounds so much that only its noise as a whole has a limit."""
    return _share(type_name) is None


def _share(type_name: str) -> float | None:
    return next((share for start, share in SHARES.items() if type_name.startswith(start)), None)


def _rows(array: np.ndarray) -> np.ndarray:
    """Returns a tensor as float32 [rows, values]; a vector is one row."""
    rows: np.ndarray = np.asarray(array, np.float32).reshape(len(array) if array.ndim > 1 else 1, -1)
    return rows


def _of_another_shape(name: str, original: np.ndarray, stored: np.ndarray, type_name: str) -> WeightDifference:
    shapes = f"{dimensions(stored.shape)}, the checkpoint's {dimensions(original.shape)}"
    turned = _rows(original.T)
    if stored.shape == original.shape[::-1] and fits(turned, _rows(stored), type_name, turned):
        return WeightDifference(name, "transposed", f"is transposed: its shape is {shapes}")
    return WeightDifference(name, "shape", f"has the shape {shapes}")


def _changes_of_tensor(
    name: str,
    original: np.ndarray,
    checkpoint_rows: np.ndarray,
    file_rows: np.ndarray,
    type_name: str,
    others: OtherTensors,
) -> Iterator[WeightDifference]:
    """Yields every change of the whole tensor that predicts the file's values."""

    def predicts(expected: np.ndarray) -> bool:
        return fits(expected, file_rows, type_name, checkpoint_rows)

    if not file_rows.any():
        yield WeightDifference(name, "zero", "is zero")
        return
    factor = factor_of(checkpoint_rows, file_rows, type_name)
    if is_clear(factor, type_name) and predicts(checkpoint_rows * np.float32(factor)):
        yield WeightDifference(name, "factor", f"is {times(factor)} the checkpoint's")
    constant = float(np.mean(file_rows - checkpoint_rows, dtype=np.float64))
    if BY_NAME[type_name].block == 1 and predicts(checkpoint_rows + np.float32(constant)):
        yield WeightDifference(name, "constant", f"is the checkpoint's plus {constant:.4g}")
    if original.ndim == 2 and min(original.shape) > 1:
        if predicts(original.reshape(original.shape[::-1]).T):
            square = original.shape[0] == original.shape[1]
            sentence = "is transposed" if square else "holds the checkpoint's bytes, read in the transposed shape"
            yield WeightDifference(name, "transposed", sentence)
        elif predicts(np.ascontiguousarray(original.T).reshape(original.shape)):
            yield WeightDifference(name, "transposed", "holds the transposed matrix, written in the old shape")
    sample = slice(None, None, max(len(checkpoint_rows) // 8, 1))  # rows that rule most other tensors out
    for other_name, values in others():
        table = _rows(values)
        if (
            table.shape == checkpoint_rows.shape
            and not differs(table[sample], file_rows[sample], type_name).any()
            and predicts(table)
        ):
            yield WeightDifference(name, "other tensor", f"holds {other_name}", other_name)


def _changes_of_parts(
    name: str, checkpoint_rows: np.ndarray, file_rows: np.ndarray, wrong: np.ndarray, type_name: str
) -> Iterator[WeightDifference]:
    """Yields the first change of some rows or blocks that predicts the file's values; the others are right."""
    rows = np.flatnonzero(wrong.any(axis=1))
    checkpoint_part, file_part = checkpoint_rows[rows], file_rows[rows]
    place = f"{'row' if len(rows) == 1 else 'rows'} {listed(rows)}"
    is_matrix = len(checkpoint_rows) > 1
    if is_matrix and not file_part.any():
        yield WeightDifference(name, "zero", f"is zero in {place}")
        return
    factor = factor_of(checkpoint_part, file_part, type_name)
    if (
        is_matrix
        and is_clear(factor, type_name)
        and fits(checkpoint_part * np.float32(factor), file_part, type_name, checkpoint_part)
    ):
        yield WeightDifference(name, "factor", f"is {times(factor)} the checkpoint's in {place}")
        return
    if wrong.shape[1] > 1 and (sentence := _blocks(checkpoint_rows, file_rows, wrong, type_name)):
        yield WeightDifference(name, "factor", sentence)
        return
    if is_matrix and len(rows) <= MAX_ROWS:
        sources = nearest_rows(file_part, checkpoint_rows)
        if len(np.unique(sources)) == len(rows) and fits(
            checkpoint_rows[sources], file_part, type_name, checkpoint_part
        ):
            order = np.arange(len(checkpoint_rows))
            order[rows] = sources
            yield WeightDifference(name, "rows", in_another_order("row", order))
            return
    if is_matrix and checkpoint_rows.shape[1] <= MAX_ROWS:
        sources = nearest_rows(file_rows.T, checkpoint_rows.T)
        if len(np.unique(sources)) == len(sources) and fits(
            checkpoint_rows[:, sources], file_rows, type_name, checkpoint_rows
        ):
            yield WeightDifference(name, "columns", in_another_order("column", sources))


def _blocks(checkpoint_rows: np.ndarray, file_rows: np.ndarray, wrong: np.ndarray, type_name: str) -> str:
    """Returns words for blocks that have one factor in common, or are zero; empty for others."""
    width = checkpoint_rows.shape[1] // wrong.shape[1]
    checkpoint_blocks, file_blocks = (side.reshape(*wrong.shape, width)[wrong] for side in (checkpoint_rows, file_rows))
    rows, blocks = np.nonzero(wrong)
    first = f"columns {blocks[0] * width} to {(blocks[0] + 1) * width - 1}" if width > 1 else f"column {blocks[0]}"
    count = (
        counted(len(checkpoint_blocks), "block") + f" of {width} values"
        if width > 1
        else counted(len(checkpoint_blocks), "value")
    )
    where = f"{count} (the first is row {rows[0]}, {first})"
    if rows[0] == rows[-1] and len(blocks) > 1 and is_range(blocks):
        where = f"row {rows[0]}, columns {blocks[0] * width} to {(blocks[-1] + 1) * width - 1}"
    if not file_blocks.any():
        return f"is zero in {where}"
    factor = factor_of(checkpoint_blocks, file_blocks, type_name)
    if not is_clear(factor, type_name):
        return ""
    predicted = np.array(checkpoint_rows)
    predicted.reshape(*wrong.shape, width)[wrong] *= np.float32(factor)
    return "" if differs(predicted, file_rows, type_name).any() else f"is {times(factor)} the checkpoint's in {where}"


def least_error(type_name: str) -> float:
    """Returns the least relative L2 of a tensor that is a difference without a known cause."""
    return LARGE_IN_FEW_BITS if has_few_bits(type_name) else 0.0 if type_name.startswith(PRECISE) else LARGE


def is_clear(factor: float, type_name: str) -> bool:
    """Returns whether a factor is further from 1 than the rounding of the type explains.

    With few bits, only a change of sign is: a scale for each row, or squares, may leave no more than the noise.
    """
    if has_few_bits(type_name):
        return factor == -1
    return type_name.startswith(PRECISE) or abs(factor - 1) >= CLEAR_FACTOR


def factor_of(checkpoint: np.ndarray, file: np.ndarray, type_name: str) -> float:
    """Returns the factor that turns the checkpoint's values into the file's, of the same shape, with least squares.

    If rounding has moved the factor, it is the round one near it, such as 2 for 1.9987.
    """
    size = float(np.vdot(checkpoint, checkpoint))
    best_factor = float(np.vdot(checkpoint, file)) / size if size else 0.0
    if has_few_bits(type_name):
        return -1.0 if _NEGATIVE[0] <= best_factor <= _NEGATIVE[1] else best_factor
    parts, tolerance = (64, 2e-3) if type_name.startswith(PRECISE) else (4, 0.05)
    rounded = round(best_factor * parts) / parts
    return rounded if rounded and abs(best_factor - rounded) < tolerance * abs(rounded) else best_factor


def times(factor: float) -> str:
    """Returns the words for a factor, before "the checkpoint's"."""
    return "the negative of" if factor == -1 else f"{factor:.4g} times"


def nearest_rows(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Returns for each of the rows [n, width] the index of the nearest row of a table [m, width], int64 [n]."""
    half_norms = 0.5 * np.einsum("rc,rc->r", table, table)
    chunks = [rows[first : first + _CHUNK] for first in range(0, len(rows), _CHUNK)]
    return np.concatenate([np.argmax(chunk @ table.T - half_norms, axis=1) for chunk in chunks])


def in_another_order(unit: str, order: np.ndarray) -> str:
    """Returns words for rows or columns in another order; `order` [n] has the checkpoint's index of each."""
    count = len(order)
    for heads in (each for each in range(1, count // 4 + 1) if count % (2 * each) == 0):
        interleaved = np.arange(count).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)
        deinterleaved = np.argsort(interleaved)
        for head_order, sentence in (
            (interleaved, "interleaved, as in Llama's files"),
            (deinterleaved, "taken apart as if interleaved"),
        ):
            if count > 4 and np.array_equal(order, head_order):
                return f"has the halves of each head of {count // heads} {unit}s {sentence}"
    changed_places = np.flatnonzero(order != np.arange(count))
    dots = ", ..." if len(changed_places) > 8 else ""
    checkpoint_places, file_places = (
        f"{in_order(places[:8])}{dots}" for places in (order[changed_places], changed_places)
    )
    return f"has its {unit}s in another order: {unit}s {file_places} are the checkpoint's {checkpoint_places}"
