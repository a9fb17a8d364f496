"""Explanations of wrong sinusoidal positions, from the difference between candidate and reference."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Hint, Scene

WIDTH, COUNT = 24, 30
X = 3 * np.random.default_rng(2).standard_normal((COUNT, WIDTH))


def positions(first: int = 1, less: int = 1, base: float = 10000.0, step: float = 1.0) -> np.ndarray:
    rates = base ** (-np.arange(WIDTH // 2) / (WIDTH // 2 - less))
    angles = (np.arange(COUNT)[:, None] + first) * step * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def hint_of(candidate: np.ndarray) -> Hint | None:
    reference, other = ((X + each).astype(np.float32) for each in (positions(), candidate))
    return explain(Scene("encoder.input", reference, other, 1e-6), 0.1)


@pytest.mark.parametrize(
    "candidate, sentence",
    [
        (0 * positions(), "its positions are not added"),
        (2 * positions(), "its positions are added twice"),
        (0.5 * positions(), "its positions are multiplied by 0.5;"),
        (WIDTH**0.5 * positions(), "its positions are multiplied by 4.899 (√24, the root of the width)"),
        (positions(first=0), "its positions are counted from 0, where the reference's are counted from 1;"),
        (
            positions(less=0),
            "its positions have rates in as many steps as half the width, where the reference's have rates in as",
        ),
        (positions(base=1000.0), "its positions have the base 1000, where the reference has 10000;"),
        (np.roll(positions(), WIDTH // 2, axis=1), "its positions have cosines in the first half and sines in the sec"),
        (
            positions().reshape(COUNT, 2, -1).swapaxes(1, 2).reshape(COUNT, WIDTH),
            "its positions have sines and cosines in turn, where the reference's have sines in the first half",
        ),
        (
            positions(0, 0).reshape(COUNT, 2, -1).swapaxes(1, 2).reshape(COUNT, WIDTH),
            "its positions have sines and cosines in turn, are counted from 0 and have rates in as many steps as half "
            "the width, where the reference's have sines in the first half",
        ),
        (positions(step=2.0), "its positions grow by 2 from row to row, where the reference's grow by 1;"),
        (positions(step=0.5), "its positions grow by 0.5 from row to row"),
        (positions()[::-1], "its positions are counted from the last row back;"),
        (
            np.concatenate([positions()[:4], positions()[:-4]]),
            "its positions are counted anew from row 4 on, as when they do not count the rows before;",
        ),
        (np.concatenate([0 * positions()[:4], positions()[4:]]), "its first 4 rows have no positions;"),
        (np.concatenate([0 * positions()[:1], positions()[1:]]), "its first row has no positions;"),
        (
            np.concatenate([0 * positions()[:4], positions()[:-4]]),
            "its first 4 rows have no positions, and they are counted from row 4 on;",
        ),
    ],
)
def test_changed_sinusoidal_positions_are_named(candidate: np.ndarray, sentence: str) -> None:
    hint = hint_of(candidate)
    assert hint is not None and hint.kind == "positions" and hint.sentence.startswith(sentence)


def test_noise_and_two_changes_of_positions_get_no_positions_hint() -> None:
    rng = np.random.default_rng(3)
    assert hint_of(positions() + 0.1 * rng.standard_normal(X.shape)) is None
    assert hint_of(0.7 * positions(first=0)) is None


def test_positions_after_other_rows_are_named_together_with_a_missing_factor() -> None:
    first = 4  # rows of a prompt before the rows of the sound
    features = X[first:].astype(np.float32)
    scaled = np.concatenate([X[:first], WIDTH**0.5 * features])
    plain = np.concatenate([X[:first] + 1, features])
    wrong = "its positions are counted from 0, where the reference's are counted from 1;"
    missing = "from row 4 on frontend.features is in it without the factor 4.899 = √24"
    for candidate, sentence in (
        (plain + positions(first=0), f"{missing}, and {wrong}"),
        (plain + positions(), f"{missing};"),
        (
            scaled + positions(first=0) + np.eye(COUNT, WIDTH) * (np.arange(COUNT) < 2)[:, None],
            f"from row 4 on {wrong}",
        ),
    ):
        reference, other = ((each).astype(np.float32) for each in (scaled + positions(), candidate))
        stages = {"frontend.features": features}
        hint = explain(Scene("encoder.input", reference, other, 1e-6, stages, stages, ("frontend.features",)), 0.1)
        assert hint is not None and hint.sentence.startswith(sentence)


@pytest.mark.parametrize(
    "rows, sentence",
    [
        (X[[3, 0, 1, 2, *range(4, COUNT)]], "rows 0, 1, 2, 3 hold what the reference has in rows 3, 0, 1, 2;"),
        (X[[3, 1, 2, 0, *range(4, COUNT)]], "rows 0, 3 hold what the reference has in rows 3, 0;"),
        (np.roll(X, -4, axis=0), "its first 4 rows stand behind all others;"),
        (np.roll(X, 1, axis=0), "its last row stands before all others;"),
        (np.concatenate([X[:4] / WIDTH**0.5, X[4:]]), "rows 0 to 3 are 0.20412 times the reference's (1/√24);"),
    ],
)
def test_rows_that_move_without_their_positions_are_named(rows: np.ndarray, sentence: str) -> None:
    hint = hint_of(positions() + rows - X)
    assert hint is not None and hint.kind == "rows under positions"
    assert hint.sentence.startswith(f"before its positions are added, {sentence}")


def test_other_rows_under_positions_get_no_hint() -> None:
    other = X.copy()
    other[0] = np.random.default_rng(4).standard_normal(WIDTH)
    assert hint_of(positions() + other - X) is None
