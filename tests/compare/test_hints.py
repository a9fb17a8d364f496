"""What happened to an array is guessed, and the guess checked on the numbers."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from workbench.compare.hints import explain_numbers, explain_shape
from workbench.compare.measures import measure

X = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32)
SQUARE = np.random.default_rng(4).standard_normal((5, 5)).astype(np.float32)


@pytest.mark.parametrize(
    "candidate, said",
    [
        (X.T, "the shapes are 6×4 and 4×6: the candidate is transposed; after this change they differ by 0 %"),
        (X[None], "the candidate has a dimension of 1 more, such as a batch; after this change they differ by 0 %"),
        (np.vstack([X, X[:1]]), "the candidate has 1 row more at the end; after this change"),
        (np.vstack([X[:1] + 9, X]), "the candidate has 1 row more at the beginning; after this change"),
        (np.vstack([X, 0 * X[:2]]), "the candidate has 2 rows more of zeros, padding, at the end; after this change"),
        (X[1:], "the reference has 1 row more at the beginning; after this change"),
        (np.hstack([X, 0 * X]), "the candidate has 4 columns more of zeros, padding, at the end; after this change"),
        (
            X.reshape(4, 6) * 1.001,
            "the same number of values is laid out in another shape; after this change they diff",
        ),
        (X.T + 9, "as if the candidate is transposed, but after this change the numbers differ too"),
        (np.ones((5, 3)), "the shapes are 6×4 and 5×3: 6 and 5 along axis 0, 4 and 3 along axis 1"),
        (np.ones((2, 5, 3)), "the reference has 2 dimensions, the candidate 3"),
        (np.array(1.0), "the shapes are 6×4 and a scalar"),
        (np.ones((0, 4)), "the shapes are 6×4 and 0×4"),
        (X.T[None], "one has a dimension of 1 more, and is transposed; after"),
    ],
)
def test_another_shape_is_explained(candidate: np.ndarray, said: str) -> None:
    assert said in explain_shape(X, candidate)


@pytest.mark.parametrize(
    "reference, candidate, said",
    [
        (X, 22.5 * X, "it is 22.5 times the reference"),
        (X, -X, "it is -1 times the reference"),
        (SQUARE, SQUARE.T, "it is transposed"),
        (X, np.vstack([X[:1], X[:-1]]), "its rows come one position late"),
        (X, np.vstack([X[1:], X[:1]]), "its rows come one position early"),
        (X, X[::-1], "its rows are in reverse order"),
    ],
)
def test_other_numbers_are_explained(reference: np.ndarray, candidate: np.ndarray, said: str) -> None:
    rng = np.random.default_rng(5)
    noisy = candidate + 1e-6 * rng.standard_normal(candidate.shape)
    found = explain_numbers(reference, noisy, measure(reference, noisy))
    assert found is not None and found.startswith(said)


TALL = np.random.default_rng(6).standard_normal((60, 30)).astype(np.float32)


def swapped(rows: list[int], order: list[int]) -> np.ndarray:
    found = TALL.copy()
    found[rows] = TALL[order]
    return found


def zeroed(rows: object, columns: object) -> np.ndarray:
    found = TALL.copy()
    found[rows, columns] = 0
    return found


@pytest.mark.parametrize(
    "candidate, said",
    [
        (swapped([1, 2], [2, 1]), "rows 1, 2 hold what the reference has in rows 2, 1"),
        (swapped([0, 5, 9], [9, 0, 5]), "rows 0, 5, 9 hold what the reference has in rows 9, 0, 5"),
        ((TALL + np.arange(30)) * np.linspace(0.5, 2, 30), "each channel is a multiple of the reference's plus a"),
        (zeroed(slice(0, 1), slice(None)), "of 60 rows, only row 0 differs"),
        (zeroed(slice(0, 4), slice(None)), "of 60 rows, only rows 0, 1, 2, 3 differ"),
        (zeroed(slice(None), slice(7, 8)), "of 30 channels, only channel 7 differs"),
        (zeroed(slice(0, 30), slice(0, 20)), None),
    ],
)
def test_the_place_of_the_difference_is_reported(candidate: np.ndarray, said: str | None) -> None:
    found = explain_numbers(TALL, candidate, measure(TALL, candidate))
    assert found is None if said is None else found is not None and found.startswith(said)


def test_guesses_need_little_memory() -> None:
    reference = np.random.default_rng(7).standard_normal((600, 3000)).astype(np.float32)
    candidate = reference.copy()
    candidate[:60] = reference[:60][::-1]
    found = measure(reference, candidate)
    tracemalloc.start()
    said = explain_numbers(reference, candidate, found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert said is not None and said.startswith(
        "rows 0, 1, 2, 3, 4, 5, 6, 7 and 52 more hold what the reference has in"
    )
    assert peak < 2 * reference.nbytes


def test_nothing_simple_is_not_explained() -> None:
    other = np.random.default_rng(9).standard_normal(X.shape)
    assert explain_numbers(X, other, measure(X, other)) is None
    assert explain_numbers(X, X, measure(X, X)) is None
    gap = X.copy()
    gap[0, 0] = np.nan
    assert explain_numbers(X, gap, measure(X, gap)) is None
    assert explain_numbers(X[0], other[0], measure(X[0], other[0])) is None
