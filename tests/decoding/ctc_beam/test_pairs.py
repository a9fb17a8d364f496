"""The selection of likely hypothesis-token pairs, against trying all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.decoding.ctc_beam.pairs import SAMPLED, likely_pairs

MOST = 12


def the_best(base: np.ndarray, log_probs: np.ndarray, cut: float, most: int) -> list[tuple[int, int]]:
    """Returns one utterance's best pairs of row and token whose sum reaches the cut, at most `most`."""
    sums = base[:, None] + log_probs
    pairs = [(row, token) for row, token in np.ndindex(*sums.shape) if sums[row, token] >= max(cut, -1e300)]
    return sorted(sorted(pairs, key=lambda pair: -sums[pair])[:most])


@pytest.mark.parametrize("seed", range(40))
def test_likely_pairs_equal_the_best_of_all_pairs_above_the_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, rows = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    vocabulary = int(rng.choice([3, 40, SAMPLED * MOST + 200]))
    base = rng.normal(scale=3.0, size=(count, rows))
    log_probs = rng.normal(scale=3.0, size=(count, vocabulary)) - 5.0
    base[rng.random(base.shape) < 0.2] = -np.inf
    log_probs[rng.random(log_probs.shape) < 0.2] = -np.inf
    cut = rng.choice([-np.finfo(np.float64).max, -8.0, 0.0, 9.0], size=count)
    pairs = likely_pairs(base, log_probs, cut, MOST)
    assert (np.diff(pairs.utterances) >= 0).all()
    np.testing.assert_array_equal(pairs.parents // rows, pairs.utterances)
    np.testing.assert_array_equal(log_probs[pairs.utterances, pairs.tokens], pairs.log_probs)
    for each in range(count):
        of_utterance = pairs.utterances == each
        likely = sorted(zip((pairs.parents[of_utterance] % rows).tolist(), pairs.tokens[of_utterance].tolist()))
        assert likely == the_best(base[each], log_probs[each], cut[each], MOST)


def test_all_pairs_are_used_when_fewer_than_the_maximum_exist() -> None:
    """If there are fewer pairs than the maximum, the result contains all."""
    pairs = likely_pairs(np.zeros((1, 3)), np.array([[-np.inf, 0.0, 0.0, 0.0, 0.0]]), np.array([-1.0]), MOST)
    assert sorted(zip(pairs.parents.tolist(), pairs.tokens.tolist())) == [(r, t) for r in range(3) for t in range(1, 5)]
