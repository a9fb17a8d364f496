"""Compares a table of tokens that is too large to hold, and recognises what was done to it, as `compare.weights` does.

All rows are compared, some at a time. A few wrong rows suggest a cause. The cause is named only if it predicts every
wrong row. Where rows have moved by k places, up to k rows may be new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from workbench.compare.guesses.guess import listed
from workbench.compare.weights.tensor import (
    WeightDifference,
    differs,
    factor_of,
    fits,
    in_another_order,
    is_clear,
    least_error,
    nearest_rows,
    times,
)
from workbench.core.phrases import counted

RowReader = Callable[[int, int], np.ndarray]
"""Returns the rows from the first to before the last of a table, float32 [rows, values]."""

STEP = 1 << 22  # values that are compared at a time
MAX_SAMPLED = 32  # wrong rows that suggest a cause


@dataclass(frozen=True)
class Table:
    """A table of the file beside the checkpoint's.

    Args:
        own: reads the checkpoint's rows.
        stored: reads the file's rows, dequantised.
        type_name: the type in the file, such as `Q8_0`.
    """

    name: str
    shape: tuple[int, int]
    own: RowReader
    stored: RowReader
    type_name: str

    def parts(self) -> Iterator[tuple[int, int]]:
        """Yields the first row and the row after the last of each part."""
        rows, width = self.shape
        step = max(STEP // width, 1)
        for first in range(0, rows, step):
            yield first, min(first + step, rows)


def table_difference(table: Table, others: Iterable[tuple[str, RowReader]]) -> WeightDifference | None:
    """Returns how a table differs from the checkpoint's; None if it differs by rounding only.

    Args:
        others: the checkpoint's other tables of the same shape, by name.
    """
    wrong_rows, error, infinite = _wrong_rows(table)
    if not len(wrong_rows):
        return None
    if infinite:
        return WeightDifference(table.name, "values", f"holds {counted(infinite, 'infinite or NaN value')}")
    sample = wrong_rows[np.unique(np.linspace(0, len(wrong_rows) - 1, MAX_SAMPLED).astype(int))]
    cause = next(_causes(table, wrong_rows, sample, others), None)
    if cause is not None:
        return cause
    if error < least_error(table.type_name):
        return None
    rows_clause = (
        f" in {counted(len(wrong_rows), 'row')} of {table.shape[0]}" if len(wrong_rows) < table.shape[0] else ""
    )
    return WeightDifference(
        table.name, "values", f"differs from the checkpoint's by a relative L2 of {error:.2g}{rows_clause}"
    )


def _wrong_rows(table: Table) -> tuple[np.ndarray, float, int]:
    """Returns the rows that differ by more than rounding, the relative L2 of the whole table, and how many values of
    the file are infinite or NaN.
    """
    wrong, squares, error, infinite = [], 0.0, 0.0, 0
    for first, last in table.parts():
        own, stored = table.own(first, last), table.stored(first, last)
        wrong.append(first + np.flatnonzero(differs(own, stored, table.type_name).any(axis=1)))
        squares += float(np.vdot(own, own))
        error += float(np.vdot(stored - own, stored - own))
        infinite += int((~np.isfinite(stored)).sum())
    return np.concatenate(wrong), (error / squares) ** 0.5 if squares else float("inf"), infinite


def _causes(
    table: Table, wrong: np.ndarray, sample: np.ndarray, others: Iterable[tuple[str, RowReader]]
) -> Iterator[WeightDifference]:
    """Yields every change that predicts the wrong rows; the others are right."""
    checkpoint_rows, file_rows = _at(table.own, sample), _at(table.stored, sample)
    rows_clause = "" if len(wrong) == table.shape[0] else f" in {'row' if len(wrong) == 1 else 'rows'} {listed(wrong)}"

    def predicts(reader: RowReader, rows: np.ndarray) -> bool:
        if not fits(_at(reader, sample), file_rows, table.type_name, checkpoint_rows):
            return False
        return len(_predicted(table, reader, rows)) == len(rows)

    if not file_rows.any() and predicts(
        lambda first, last: np.zeros((last - first, table.shape[1]), np.float32), wrong
    ):
        yield WeightDifference(table.name, "zero", f"is zero{rows_clause}")
        return
    factor = factor_of(checkpoint_rows, file_rows, table.type_name)
    if is_clear(factor, table.type_name) and predicts(lambda *rows: table.own(*rows) * np.float32(factor), wrong):
        yield WeightDifference(table.name, "factor", f"is {times(factor)} the checkpoint's{rows_clause}")
    for other_name, reader in others:
        if predicts(reader, np.arange(table.shape[0])):
            yield WeightDifference(table.name, "other tensor", f"holds {other_name}", other_name)
    sources = _sources(table, file_rows)
    order = np.arange(table.shape[0])
    if len(wrong) == len(sample):
        order[wrong] = sources
        distinct = len(np.unique(sources)) == len(sources)
        if distinct and fits(_at(table.own, sources), file_rows, table.type_name, checkpoint_rows):
            yield WeightDifference(table.name, "rows", in_another_order("row", order))
        return
    [(shift, _)] = Counter((sources - sample).tolist()).most_common(1)
    shifted_rows = wrong[(wrong + shift >= 0) & (wrong + shift < len(order))]
    shifted_rows = _predicted(table, _shifted(table, shift), shifted_rows)
    if len(wrong) - len(shifted_rows) <= abs(shift):
        order[shifted_rows] = shifted_rows + shift
        yield WeightDifference(table.name, "rows", in_another_order("row", order))


def _at(reader: RowReader, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([reader(row, row + 1) for row in rows.tolist()])


def _predicted(table: Table, reader: RowReader, rows: np.ndarray) -> np.ndarray:
    """Returns those of the rows at which the reader gives the file's values, to within rounding."""
    predicted = []
    for first, last in table.parts():
        rows_of_part = rows[(first <= rows) & (rows < last)]
        if len(rows_of_part):
            expected, stored = (read(first, last)[rows_of_part - first] for read in (reader, table.stored))
            predicted.append(rows_of_part[~differs(expected, stored, table.type_name).any(axis=1)])
    return np.concatenate(predicted) if predicted else rows[:0]


def _shifted(table: Table, shift: int) -> RowReader:
    """Returns a reader of the checkpoint's rows that are `shift` rows further; rows outside the table are zero."""

    def read(first: int, last: int) -> np.ndarray:
        values = np.zeros((last - first, table.shape[1]), np.float32)
        start, end = max(first + shift, 0), min(last + shift, table.shape[0])
        if start < end:
            values[start - first - shift : end - first - shift] = table.own(start, end)
        return values

    return read


def _sources(table: Table, rows: np.ndarray) -> np.ndarray:
    """Returns for each of the file's rows the nearest row of the checkpoint."""
    least_distances, sources = np.full(len(rows), np.inf), np.zeros(len(rows), int)
    for first, last in table.parts():
        own = table.own(first, last)
        nearest = nearest_rows(rows, own)
        distances = np.linalg.norm(rows - own[nearest], axis=1)
        is_nearer = distances < least_distances
        least_distances[is_nearer], sources[is_nearer] = distances[is_nearer], first + nearest[is_nearer]
    return sources
