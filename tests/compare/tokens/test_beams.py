"""Comparison of beam search steps: near ties, other hypotheses, and dumps from a search of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.compare import compare, judge
from workbench.core.errors import BadInput
from workbench.trace.ancestry import Ancestry, ancestry_of_stages
from workbench.trace.steps import steps_of
from workbench.trace.trace import Trace

SCORES = [-1.0, -1.00001, -2.0, -3.0]
CANDIDATES = [[0, 7], [1, 8], [0, 9], [1, 5]]
ROW = np.random.default_rng(0).normal(size=(1, 8))


def trace(second: Any = ((0, 7), (1, 8)), with_hypotheses: bool = True, **changed: Any) -> Trace:
    """A search of two beams and two steps; `second` are parents and tokens of the second."""
    stages = {
        "steps.1.beams.parents": np.array([0, 0]),
        "steps.1.beams.tokens": np.array([3, 4]),
        "steps.2.beams.scores": np.array(SCORES),
        "steps.2.beams.candidates": np.array(CANDIDATES),
        "steps.2.beams.parents": np.array([parent for parent, _ in second]),
        "steps.2.beams.tokens": np.array([token for _, token in second]),
        **{f"steps.{n}.beams.{b}.logits": ROW + 10 * n + b for n in (1, 2) for b in (0, 1)},
    }
    selected = stages if with_hypotheses else {name: array for name, array in stages.items() if "parents" not in name}
    return Trace(selected | changed, {"input_digest": "a"})


def test_near_tie_between_hypotheses_passes_and_later_steps_are_not_compared() -> None:
    comparison = compare(trace(), trace([(1, 8), (0, 7)]))
    assert "not compared, since the sides read different hypotheses from step 2 on: step 2" in comparison.warnings
    compared = [each.stage for each in comparison.stages if each.stage.startswith("steps.2")]
    assert compared == ["steps.2.beams.scores", "steps.2.beams.parents", "steps.2.beams.tokens"]
    assert judge(comparison).within
    assert comparison["steps.2.beams.tokens"].hint == "a near tie: the scores are at most 1e-05 apart"


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ([(0, 7), (0, 9)], "The reference has token 8 after beam 1 (score -1), the candidate token 9 after beam 0"),
        ([(0, 7), (0, 6)], "the candidate token 6 after beam 0 (no candidate of the reference)"),
    ],
)
def test_different_hypothesis_is_named_with_its_score(second: Any, sentence: str) -> None:
    verdict = judge(compare(trace(), trace(second)))
    assert verdict.faulty_stage in ("steps.2.beams.parents", "steps.2.beams.tokens")
    assert sentence in verdict.sentence and "at step 2, in the choice of its hypotheses" in verdict.sentence


def test_same_hypotheses_in_another_order_are_named() -> None:
    scores = {"steps.2.beams.scores": np.array([-1.0, -1.5, -2.0, -3.0])}
    verdict = judge(compare(trace(**scores), trace([(1, 8), (0, 7)], **scores)))
    assert "The same hypotheses in another order" in verdict.sentence


def test_dump_without_hypotheses_is_compared_with_a_warning() -> None:
    comparison = compare(trace(), trace(with_hypotheses=False))
    assert judge(comparison).within
    assert any(
        each.startswith("the candidate does not say which hypotheses its steps read") for each in comparison.warnings
    )


def test_an_ancestry_is_read_from_stages_and_metadata() -> None:
    expected = Ancestry(((0, 0), (0, 1)), ((3, 4), (7, 8)))
    assert ancestry_of_stages(trace()) == expected and ancestry_of_stages(trace(with_hypotheses=False)) is None
    known = steps_of(Trace({}, {"steps": {"traced": [1], "followed": [], "beams": expected.to_meta()}}))
    assert known and known.ancestry == expected
    assert expected.common_steps(Ancestry(((0, 0), (0, 1)), ((3, 4), (7, 9)))) == 1
    for wrong in (None, {"parents": [[0]], "tokens": [1]}, {"parents": [[5]], "tokens": [[1]]}, {"parents": [[0]]}):
        with pytest.raises(BadInput, match="hypotheses"):
            steps_of(Trace({}, {"steps": {"traced": [1], "followed": [], "beams": wrong}}))
    with pytest.raises(BadInput, match="not numbers of beams or tokens"):
        ancestry_of_stages(trace(**{"steps.1.beams.parents": np.array([0.5, 0.0])}))
