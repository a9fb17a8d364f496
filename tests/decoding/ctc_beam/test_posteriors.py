"""Posteriors of words from an n-best list."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.decoding.ctc_beam import CtcDecoder, Hypothesis, SearchOptions, posteriors


def hypothesis(words: str, probability: float) -> Hypothesis:
    return Hypothesis((), tuple(words.split()), float(np.log(probability)))


def test_word_posterior_is_the_probability_share_of_hypotheses_with_the_word() -> None:
    hypotheses = [hypothesis("the cat sat", 0.4), hypothesis("the hat sat", 0.3), hypothesis("cat sat", 0.1)]
    assert posteriors(hypotheses) == pytest.approx([0.7 / 0.8, 0.5 / 0.8, 1.0])


def test_posterior_over_all_hypotheses_equals_the_ctc_probability() -> None:
    """One frame: the posterior of a token is its probability."""
    (hypotheses,) = CtcDecoder(3, 0, SearchOptions(nbest=9)).decode([np.log([[0.2, 0.5, 0.3]])])
    assert posteriors(hypotheses) == pytest.approx([0.5])


def test_posteriors_of_empty_and_single_n_best_lists() -> None:
    assert posteriors([]) == []
    assert posteriors([hypothesis("a b", 0.01)]) == [1.0, 1.0]
