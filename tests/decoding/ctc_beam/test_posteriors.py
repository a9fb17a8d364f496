"""Posteriors of words from an n-best list."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.decoding.ctc_beam import CtcDecoder, Hypothesis, SearchOptions, posteriors


def hypothesis(words: str, probability: float) -> Hypothesis:
    return Hypothesis((), tuple(words.split()), float(np.log(probability)))


def test_a_word_has_the_share_of_the_hypotheses_that_have_it_there() -> None:
    found = [hypothesis("the cat sat", 0.4), hypothesis("the hat sat", 0.3), hypothesis("cat sat", 0.1)]
    assert posteriors(found) == pytest.approx([0.7 / 0.8, 0.5 / 0.8, 1.0])


def test_with_all_hypotheses_posteriors_are_those_of_ctc() -> None:
    """One frame: the posterior of a token is its probability."""
    (found,) = CtcDecoder(3, 0, SearchOptions(nbest=9)).decode([np.log([[0.2, 0.5, 0.3]])])
    assert posteriors(found) == pytest.approx([0.5])


def test_lists_of_one_and_none() -> None:
    assert posteriors([]) == []
    assert posteriors([hypothesis("a b", 0.01)]) == [1.0, 1.0]
