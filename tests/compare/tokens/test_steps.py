"""Comparison of decoding steps: steps after different tokens, and the verdict's sentence on the first faulty step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.compare import compare, judge, noise_or_bug
from workbench.compare.tokens.steps import about_steps, last_common_step, ranges
from workbench.trace.trace import Trace

RNG = np.random.default_rng(0)
VALUES = {
    name: RNG.normal(size=(6, 8) if not name.startswith("steps") else (1, 8))
    for name in ("llm.layers.0", "logits", *(f"steps.{n}.{s}" for n in (1, 2, 3) for s in ("llm.layers.0", "logits")))
}
TOKENS = [3, 4, 5, 6]


def trace(dtype: str = "float32", tokens: Any = TOKENS, meta: bool = True, **changed: float) -> Trace:
    """A small trace with three steps; `changed` stages, with dots as `__`, are off by a share of their size."""
    factors = {name.replace("__", "."): factor for name, factor in changed.items()}
    stages = {name: (array * (1 + factors.get(name, 0))).astype(dtype) for name, array in VALUES.items()}
    known = {"steps": {"traced": [1, 2, 3], "followed": list(tokens)}} if meta else {}
    return Trace(stages | {"tokens": np.array(tokens)}, {"dtype": dtype, "input_digest": "a", **known})


def test_verdict_names_the_faulty_step_and_the_steps_within_tolerance() -> None:
    verdict = judge(compare(trace(), trace(steps__2__llm__layers__0=0.01)))
    assert verdict.faulty_stage == "steps.2.llm.layers.0"
    assert (
        "The candidate first differs at step 2, in llm.layers.0. The prompt's pass and step 1 are within tolerance."
        in verdict.sentence
    )


def test_verdict_names_no_faulty_step_for_a_prompt_fault_or_no_fault() -> None:
    assert "step" not in judge(compare(trace(), trace(logits=0.01))).sentence.split(";")[1]
    assert "The prompt's pass and steps 1 to 3 are within" in judge(compare(trace(), trace())).sentence


def test_verdict_says_when_a_wrong_cache_was_still_right() -> None:
    """An array with the last cache shows a row that was overwritten later in all steps."""
    caches = [f"steps.{n}.llm.layers.0.cache.key" for n in (1, 2, 3)]
    stages = ["logits", *caches, *(f"steps.{n}.llm.layers.0" for n in (1, 2, 3))]
    begin = [
        "The candidate first differs at step 1, in llm.layers.0.cache.key.",
        "The prompt's pass is within tolerance.",
    ]
    right = "are within tolerance, so the cache was right when they read it"
    assert about_steps(stages, [*caches, "steps.3.llm.layers.0"]) == [
        *begin,
        f"The layers of steps 1 to 2 {right}, and wrong at step 3.",
    ]
    assert about_steps(stages, caches) == [*begin, f"The layers of steps 1 to 3 {right}."]
    assert about_steps(stages, [caches[0], "steps.1.llm.layers.0"]) == begin
    assert about_steps(["logits", *caches], caches) == begin


def test_float64_finds_a_faulty_step_within_tolerance() -> None:
    faulty = trace(steps__3__llm__layers__0=8e-5)
    verdict = judge(compare(trace(), faulty), noise_or_bug(trace(), faulty, trace("float64")))
    assert verdict.faulty_stage == "steps.3.llm.layers.0" and verdict.found_by == "float64"


@pytest.mark.parametrize("meta", [True, False])
def test_steps_after_a_different_token_are_not_compared(meta: bool) -> None:
    other = trace(tokens=[3, 9, 5, 6], meta=meta, steps__2__logits=1.0)
    comparison = compare(trace(), other)
    compared = [each.stage for each in comparison.stages if each.stage.startswith("steps.")]
    assert compared == ["steps.1.llm.layers.0", "steps.1.logits"]
    assert "not compared, since the sides read different tokens from place 1 on: steps 2 to 3" in comparison.warnings
    report = noise_or_bug(trace(), other, trace("float64"))
    assert report.first_bug is None and not any(each.stage.startswith("steps.2") for each in report.stages)


def test_dump_without_tokens_is_assumed_to_follow_the_reference_tokens() -> None:
    dump = trace(meta=False)
    silent = Trace({stage: dump[stage] for stage in dump if stage != "tokens"}, {"input_digest": "a"})
    assert last_common_step(trace(), silent) is None
    assert last_common_step(trace(), trace(tokens=TOKENS[:2])) is None


def test_step_ranges_are_formatted_in_words() -> None:
    assert ranges([4]) == "step 4"
    assert ranges([1, 2, 3, 7, 9, 10]) == "steps 1 to 3, 7 and 9 to 10"
    assert about_steps(["steps.1.logits"], ["steps.1.logits"]) == ["The candidate first differs at step 1, in logits."]
    assert about_steps(["logits", "tokens"], []) == []


def test_growth_is_named_in_the_step_of_the_first_fault() -> None:
    """Later steps begin again with right embeddings, and their first layer may add more."""
    reference = {f"steps.{n}.llm.{s}": np.ones((1, 8)) for n in (1, 2, 3) for s in ("embeddings", "layers.0", "norm")}
    candidate = dict(reference)
    for step, error in ((2, 0.01), (3, 0.5)):
        candidate[f"steps.{step}.llm.layers.0"] = candidate[f"steps.{step}.llm.norm"] = np.ones(
            (1, 8)
        ) + error * np.eye(1, 8)
    verdict = judge(compare(Trace(reference, {}), Trace(candidate, {})))
    assert verdict.faulty_stage == verdict.largest_own == "steps.2.llm.layers.0"
