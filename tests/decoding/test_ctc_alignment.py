"""The best alignment of known tokens, against all paths of small problems."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from workbench.decoding.ctc import collapse, greedy
from workbench.decoding.ctc_alignment import best_alignment


@pytest.mark.parametrize("seed", range(12))
def test_best_alignment_is_the_likeliest_path_of_the_tokens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frames, vocabulary = int(rng.integers(1, 6)), 3
    log_probs = np.log(rng.dirichlet(np.ones(vocabulary), frames))
    best: dict[tuple[int, ...], float] = {}
    for path in product(range(vocabulary), repeat=frames):
        tokens = tuple(each.id for each in collapse(np.array(path)))
        value = float(sum(log_probs[frame, token] for frame, token in enumerate(path)))
        best[tokens] = max(best.get(tokens, -np.inf), value)
    for tokens in [*best, (1, 1, 1), (2,) * 6]:
        alignment = best_alignment(log_probs, tokens)
        assert (alignment is not None) == (tokens in best)
        if alignment is None:
            continue
        path = np.zeros(frames, int)
        for each in alignment:
            path[each.first : each.end] = each.id
        assert tuple(each.id for each in collapse(path)) == tokens
        assert log_probs[np.arange(frames), path].sum() == pytest.approx(best[tokens])


def test_alignment_of_empty_or_impossible_input() -> None:
    assert best_alignment(np.zeros((0, 3)), ()) == []
    assert best_alignment(np.zeros((0, 3)), (1,)) is None
    assert best_alignment(np.array([[-np.inf, 0.0]]), ()) is None


def test_alignment_of_greedy_tokens_reproduces_the_greedy_path() -> None:
    scores = np.random.default_rng(1).normal(size=(600, 8))
    path = greedy(scores)
    assert len(path) > 200 and best_alignment(scores, [token.id for token in path]) == path
