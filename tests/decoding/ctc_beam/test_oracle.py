"""The beam search against the definition: where the beam holds everything, all hypotheses and scores are exact."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.ctc_oracle import every_hypothesis
from tests.support.ctc_problems import random_problem

PROBLEMS = 500


@pytest.mark.parametrize("tenth", range(10))
def test_wide_beam_gives_the_exact_n_best_list_and_scores(tenth: int) -> None:
    """The n-best list is complete and without duplicates; some recordings are also decoded alone and in chunks."""
    for seed in range(tenth * PROBLEMS // 10, (tenth + 1) * PROBLEMS // 10):
        problem = random_problem(seed)
        decoder = problem.decoder()
        rng = np.random.default_rng(seed)
        for logits, hypotheses in zip(problem.batch, decoder.decode(problem.batch), strict=True):
            expected = every_hypothesis(logits, problem.blank, problem.options, **problem.parts)
            scores = {(each.tokens, each.words): each.score for each in hypotheses}
            assert len(scores) == len(hypotheses) == min(problem.options.nbest, len(expected)), seed
            best = sorted(expected.values(), reverse=True)[: len(hypotheses)]
            np.testing.assert_allclose([each.score for each in hypotheses], best, rtol=0, atol=1e-9, err_msg=str(seed))
            assert all(abs(score - expected[key]) < 1e-9 for key, score in scores.items()), seed
            if seed % 5:
                continue
            assert decoder.decode([logits]) == [hypotheses], seed
            state = decoder.begin()
            cut = int(rng.integers(len(logits) + 1))
            decoder.advance(state, logits[:cut])
            decoder.advance(state, logits[cut:])
            assert decoder.finish(state) == hypotheses, seed


def test_hypothesis_forbidden_by_a_language_model_never_appears_at_any_weight() -> None:
    """Minus infinity times a weight below 0 is no reward."""
    forbidden = 0
    for seed in range(80):
        problem = random_problem(seed, forbids=0.3)
        with np.errstate(invalid="raise"):
            decoded = problem.decoder().decode(problem.batch)
        for logits, hypotheses in zip(problem.batch, decoded, strict=True):
            expected = every_hypothesis(logits, problem.blank, problem.options, **problem.parts)
            best = sorted(expected.values(), reverse=True)[: problem.options.nbest]
            np.testing.assert_allclose([each.score for each in hypotheses], best, rtol=0, atol=1e-9, err_msg=str(seed))
            forbidden += not hypotheses
    assert forbidden, "some models forbid everything"
