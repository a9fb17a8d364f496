"""Explanations that name a wrong codebook of a residual quantiser."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Hint, Scene

ROWS, STREAMS, CODES, WIDTH = 60, 5, 16, 8


def random_codes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns codes [rows, streams] and codebooks [streams, codes, width]."""
    source = np.random.default_rng(seed)
    return source.integers(0, CODES, (ROWS, STREAMS)), source.normal(size=(STREAMS, CODES, WIDTH)).astype(np.float32)


def latents(codes: np.ndarray, books: np.ndarray) -> np.ndarray:
    sums: np.ndarray = books[np.arange(STREAMS), codes].sum(axis=1)
    return sums


def hint_of(
    codes: np.ndarray, books: np.ndarray, candidate_books: np.ndarray, candidate_codes: np.ndarray | None = None
) -> Hint | None:
    reference, candidate = latents(codes, books), latents(codes, candidate_books)
    sides = {"codec.codes": codes}, {"codec.codes": codes if candidate_codes is None else candidate_codes}
    return explain(Scene("codec.latents", reference, candidate, 1e-5, *sides), 1.0)


WRONG: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "left out": lambda books, stream: 0 * books[stream],
    "twice": lambda books, stream: 2 * books[stream],
    "of the next stream": lambda books, stream: books[(stream + 1) % STREAMS],
    "one code too far": lambda books, stream: np.roll(books[stream], 1, axis=0),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("stream", range(STREAMS))
def test_wrong_codebook_is_named_with_its_stream(wrong: str, stream: int) -> None:
    codes, books = random_codes(stream)
    changed = books.copy()
    changed[stream] = WRONG[wrong](books, stream)
    hint = hint_of(codes, books, changed)
    assert hint and hint.kind == "codebook" and f"the codebook of stream {stream} is another one" in hint.sentence


def test_other_faults_get_no_codebook_hint() -> None:
    for seed in range(30):
        codes, books = random_codes(seed)
        two = books.copy()
        two[seed % STREAMS] *= 2
        two[(seed + 1) % STREAMS] *= 0.5
        noise = books + np.random.default_rng(seed).normal(size=books.shape)
        for changed in (two, noise, books[::-1], books[:, ::-1]):
            assert hint_of(codes, books, changed) is None
        one = books.copy()
        one[2] *= 2
        assert hint_of(codes[:3], books, one) is None  # too few rows repeat a code
        assert hint_of(codes, books, one, candidate_codes=codes + 1) is None  # a sum of other codes
        same = codes.copy()
        same[:, 1] = same[:, 2]
        assert hint_of(same, books, one) is None  # two streams explain it
