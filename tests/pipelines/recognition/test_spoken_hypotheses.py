"""The n-best hypotheses of a recording, against all combinations of the hypotheses of its chunks."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.pipelines.recognition.spoken_hypotheses import best_of_chunks
from workbench.session.values import SpokenHypothesis, Token


def chunk(seed: int, count: int) -> list[SpokenHypothesis]:
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.normal(size=count))[::-1].tolist()
    return [
        SpokenHypothesis(str(number), (Token(1000 * seed + number, str(number)),), None, score, score - 1.0, 1.0)
        for number, score in enumerate(scores)
    ]


@given(st.lists(st.integers(0, 5), max_size=4))
def test_combined_hypotheses_match_the_best_of_all_combinations(counts: list[int]) -> None:
    chunks = [chunk(seed, count) for seed, count in enumerate(counts)]
    combined = best_of_chunks(chunks, " ".join)
    limit = max(counts, default=0)
    sums = sorted(
        (sum(hypothesis.score for hypothesis in combination) for combination in product(*filter(None, chunks))),
        reverse=True,
    )
    np.testing.assert_allclose([hypothesis.score for hypothesis in combined], sums[:limit] if limit else [])
    for hypothesis in combined:
        assert [token.text for token in hypothesis.tokens] == hypothesis.text.split()
        assert abs(hypothesis.score - hypothesis.acoustic - hypothesis.lm) < 1e-9
    assert len({tuple(token.id for token in hypothesis.tokens) for hypothesis in combined}) == len(combined)


def test_combinations_with_equal_tokens_are_merged() -> None:
    token = Token(1, "a")
    hypotheses = [
        SpokenHypothesis("a", (token,), None, -1.0, -1.0, 0.0),
        SpokenHypothesis("", (), None, -2.0, -2.0, 0.0),
    ]
    combined = best_of_chunks([hypotheses, hypotheses], " ".join)
    assert [(len(hypothesis.tokens), hypothesis.score) for hypothesis in combined] == [(2, -2.0), (1, -3.0)]


def test_words_are_joined_across_a_chunk_without_speech() -> None:
    word = SpokenHypothesis("a", (Token(1, "a"),), (Token(1, "Ann"),), -1.0, -1.0, 0.0)
    [combined] = best_of_chunks([[], [word], [word]], " ".join)
    assert combined.words == (Token(1, "Ann"), Token(1, "Ann")) and combined.score == -2.0
