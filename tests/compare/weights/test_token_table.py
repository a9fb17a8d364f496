"""Comparison of large weight tables by blocks of rows: the same causes, and shifted rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("gguf")

from tests.compare.weights.test_tensor import random_weights, round_trip
from workbench.compare.weights import token_table
from workbench.compare.weights.tensor import WeightDifference
from workbench.compare.weights.token_table import RowReader, Table, table_difference

ROWS, COLUMNS = 200, 64
OWN, OTHER = random_weights(1, (ROWS, COLUMNS), 30), random_weights(2, (ROWS, COLUMNS), 30)
PRECISE = ("F32", "F16", "Q8_0")


def reader(table: np.ndarray) -> RowReader:
    return lambda first, last: table[first:last]


@pytest.fixture(autouse=True)
def seven_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_table, "STEP", 7 * COLUMNS)


def difference_of(candidate: np.ndarray, kind: str) -> WeightDifference | None:
    table = Table("it", (ROWS, COLUMNS), reader(OWN), reader(round_trip(candidate, kind)), kind)
    return table_difference(table, [("other", reader(OTHER))])


def with_rows(rows: slice | list[int], values: np.ndarray | float) -> np.ndarray:
    changed = OWN.copy()
    changed[rows] = values
    return changed


CAUSES: dict[str, tuple[np.ndarray, str, str]] = {
    "zero": (0 * OWN, "zero", "is zero"),
    "some rows zero": (with_rows(slice(150, 190), 0), "zero", "is zero in rows 150 to 189"),
    "scaled by the root of the width": (8 * OWN, "factor", "is 8 times the checkpoint's"),
    "some rows twice": (with_rows([3, 40], 2 * OWN[[3, 40]]), "factor", "is 2 times the checkpoint's in rows 3, 40"),
    "another table": (OTHER, "other tensor", "holds other"),
    "two rows exchanged": (
        with_rows([5, 90], OWN[[90, 5]]),
        "rows",
        "has its rows in another order: rows 5, 90 are the checkpoint's 90, 5",
    ),
    "a row is missing, and those after it have moved": (
        np.concatenate([OWN[:20], OWN[21:], random_weights(3, (1, COLUMNS))]),
        "rows",
        "has its rows in another order: rows 20, 21, 22, 23, 24, 25, 26, 27, ... are the checkpoint's 21, 22, 23, 24, ",
    ),
    "two rows are added, and the last ones are gone": (
        np.concatenate([OWN[:20], random_weights(3, (2, COLUMNS)), OWN[20:-2]]),
        "rows",
        "rows 22, 23, 24, 25, 26, 27, 28, 29, ... are the checkpoint's 20, 21, 22, 23, 24, 25, 26, 27, ...",
    ),
}


@pytest.mark.parametrize("kind", PRECISE)
@pytest.mark.parametrize("cause", CAUSES)
def test_known_cause_is_named_for_a_table(cause: str, kind: str) -> None:
    candidate, expected, words = CAUSES[cause]
    difference = difference_of(candidate, kind)
    assert difference and difference.kind == expected and words in difference.sentence, difference


@pytest.mark.parametrize("kind", [*PRECISE, "Q4_0"])
def test_quantisation_rounding_of_a_table_is_no_difference(kind: str) -> None:
    assert difference_of(OWN, kind) is None


@pytest.mark.parametrize("kind", ["Q5_0", "Q4_0"])
def test_table_block_quantised_with_an_importance_matrix_is_no_difference(kind: str) -> None:
    candidate = round_trip(OWN, kind)
    candidate[3, :32] *= 0.65
    table = Table("it", (ROWS, COLUMNS), reader(OWN), reader(candidate), kind)
    assert table_difference(table, ()) is None


UNKNOWN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "noise": lambda own: own + OTHER,
    "each row its own factor": lambda own: own * np.linspace(2, 5, ROWS)[:, None],
    "rows and signs": lambda own: np.roll(own, 1, axis=0) * np.where(np.arange(ROWS) % 2, 1, -1)[:, None],
    "one row over all": lambda own: np.repeat(own[:1], ROWS, axis=0),
    "half scaled, half moved": lambda own: np.concatenate([2 * own[:100], own[101:], own[:1]]),
}


@pytest.mark.parametrize("kind", PRECISE)
@pytest.mark.parametrize("fault", UNKNOWN)
def test_unknown_faults_of_a_table_get_no_cause(fault: str, kind: str) -> None:
    difference = difference_of(UNKNOWN[fault](OWN), kind)
    assert difference and difference.kind == "values", difference
    assert difference.sentence.startswith("differs from the checkpoint's by a relative L2 of ")


def test_non_finite_values_of_a_table_are_counted() -> None:
    difference = difference_of(with_rows([4, 9], np.nan), "F32")
    assert difference and difference.sentence == f"holds {2 * COLUMNS} infinite or NaN values"
