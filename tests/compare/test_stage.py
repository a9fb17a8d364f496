"""Comparison of one stage: whether it is within its limits, and which limits it passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from workbench.compare.presets import EXACT, PRESETS, Tolerances
from workbench.compare.stage import compare_stage
from workbench.core.errors import BadInput

F32 = PRESETS["f32"].limits
X = np.random.default_rng(0).standard_normal((20, 8))


@given(
    npst.arrays(np.float64, (4, 5), elements=st.floats(-100, 100)),
    npst.arrays(np.float64, (4, 5), elements=st.floats(-1, 1)),
    st.sampled_from(["logits", "encoder.output"]),
)
def test_passing_limits_are_met_and_tight(reference: np.ndarray, error: np.ndarray, stage: str) -> None:
    comparison = compare_stage(stage, reference, reference + error, EXACT.limits)
    limits = comparison.passing_limits
    if any(math.isinf(value) for value in comparison.measured.values()):
        return
    assert set(limits) == set(comparison.measured)
    at_limits = compare_stage(stage, reference, reference + error, Tolerances(EXACT, (("*", limits),)).for_stage(stage))
    assert at_limits.passes, (limits, comparison.measured)
    for name, limit in limits.items():
        value = comparison.measured[name]
        assert limit == value == 0 or (
            0.85 * value <= limit <= value if name == "top1" else value <= limit <= 1.15 * value
        )


@given(st.floats(1e-9, 3.0))
def test_passing_preset_is_the_strictest_that_passes(size: float) -> None:
    comparison = compare_stage("encoder.output", X, X + size * X[::-1] / 2, F32)
    names = [
        name
        for name, preset in PRESETS.items()
        if compare_stage("encoder.output", X, X + size * X[::-1] / 2, preset.limits).passes
    ]
    assert comparison.passing_preset == (names[0] if names else None)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_limits_are_independent_of_scale(scale: float) -> None:
    for error, passes in ((1e-6, True), (1e-3, False)):
        assert compare_stage("encoder.output", scale * X, scale * X * (1 + error), F32).passes is passes


def test_single_top1_flip_passes_except_under_exact() -> None:
    logits = np.zeros((10, 4))
    logits[:, 1] = 1.0
    logits[0, 2] = 1 - 1e-9
    other = logits.copy()
    other[0, 2] = 1 + 1e-9
    comparison = compare_stage("logits", logits, other, F32)
    assert comparison.logits and comparison.logits.flips == 1 and comparison.passes
    assert [each.measure for each in compare_stage("logits", logits, other, EXACT.limits).beyond][-1] == "top1"
    other[1, 2] = logits[1, 2] = 1 - 1e-9
    other[1, 2] = 1 + 1e-9
    assert not compare_stage("logits", logits, other, F32).passes


def test_non_finite_values_on_one_side_never_pass() -> None:
    broken = X.copy()
    broken[3, 4] = np.inf
    comparison = compare_stage("encoder.output", X, broken, Tolerances(PRESETS["q4"]).for_stage("x"))
    assert (
        not comparison.passes
        and comparison.differs
        and comparison.passing_preset is None
        and comparison.passing_limits == {}
    )
    assert compare_stage("encoder.output", broken, broken, EXACT.limits).passes


def test_different_shape_is_a_mismatch_with_a_reason() -> None:
    comparison = compare_stage("encoder.output", X, X.T, F32)
    assert comparison.mismatch and "transposed" in comparison.mismatch
    assert (
        comparison.numbers is None and comparison.differs and not comparison.passes and comparison.passing_limits == {}
    )


def test_tokens_are_judged_by_token_error_rate() -> None:
    comparison = compare_stage("tokens", np.array([1, 2, 3]), np.array([1.0, 3.0]), F32)
    assert (
        comparison.kind == "tokens"
        and comparison.measured == {"token_errors": pytest.approx(1 / 3)}
        and not comparison.passes
    )
    assert comparison.passing_limits["token_errors"] == pytest.approx(0.34)
    comparison = compare_stage("text", np.array("ab"), np.frombuffer(b"ab", np.uint8), F32)
    assert (
        comparison.kind == "text"
        and comparison.passes
        and not comparison.differs
        and comparison.passing_preset == "exact"
    )


def test_prompt_token_difference_gets_a_hint() -> None:
    reference, candidate = np.array([1, 2, 3]), np.array([1, 9, 9, 3])
    comparison = compare_stage("prompt.tokens", reference, candidate, F32)
    assert comparison.hint == "at place 1, and nowhere else, the candidate has 9 9 for 2"
    assert compare_stage("tokens", reference, candidate, F32).hint is None


def test_reference_of_only_nan_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"^stage x of the reference holds no finite number; nothing can be compared with it$"
    ):
        compare_stage("x", np.full((2, 2), np.nan), np.ones((2, 2)), F32)
    assert compare_stage("x", np.ones((0, 2)), np.ones((0, 2)), EXACT.limits).passes


def test_integers_against_floats_are_compared_as_numbers_outside_token_stages() -> None:
    comparison = compare_stage("predictor.alphas", np.array([0.5, 1.0]), np.array([0, 1], np.int8), F32)
    assert comparison.kind == "numbers" and comparison.numbers and comparison.numbers.max_abs == 0.5
    assert compare_stage("tokens", np.array([3, 4]), np.array([[3.0, 4.0]]), F32).passes
    with pytest.raises(BadInput, match=r"^stage tokens of the candidate holds float64 values that are not token ids"):
        compare_stage("tokens", np.array([3, 4]), np.array([3.5, 4.0]), F32)


def test_text_against_numbers_raises_an_error_with_the_stage_name() -> None:
    with pytest.raises(BadInput) as caught:
        compare_stage("encoder.output", X, np.array("seven"), F32)
    assert str(caught.value) == (
        "stage encoder.output holds float64 of shape (20, 8) in the reference and a text in the candidate; expected "
        "numbers, or one string, in both"
    )
    with pytest.raises(BadInput, match=r"holds 2 texts in the reference and a text in the candidate; expected one str"):
        compare_stage("text", np.array(["a", "b"]), np.array("a"), F32)


def test_logits_after_log_softmax_get_a_hint() -> None:
    comparison = compare_stage("logits", X, X - np.log(np.exp(X).sum(axis=1, keepdims=True)), F32)
    assert not comparison.passes and comparison.hint and "as after log-softmax" in comparison.hint
