"""Comparisons of candidates computed from the reference's own inputs, on the small network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.networks import LAYERS, computed
from workbench.compare import compare, judge, noise_or_bug
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(0, LAYERS - 1), min_size=1), st.integers(0, 1000), st.sampled_from(["float32", "float16"]))
def test_isolated_comparison_names_exactly_the_faulty_layers(layers: set[int], seed: int, dtype: str) -> None:
    """For any number of faulty layers, and however much later layers would inherit of the error."""

    def distort(x: np.ndarray) -> np.ndarray:
        return x + 0.2 * x.std() * np.random.default_rng(seed).standard_normal(x.shape)

    faulty = [f"encoder.layers.{layer}" for layer in sorted(layers)]
    reference = computed(seed=seed)
    candidate = computed(dtype, seed, faults=dict.fromkeys(faulty, distort), given=reference)
    exact = computed("float64", seed, given=reference)
    verdict = judge(compare(reference, candidate), noise_or_bug(reference, candidate, exact))
    assert list(verdict.faulty_stages) == faulty
    assert verdict.largest_own in faulty and verdict.first_divergent == faulty[0]


def test_isolated_error_is_per_stage_and_has_no_growth() -> None:
    reference = computed()
    faults = {"encoder.layers.2": lambda x: 1.01 * x, "encoder.layers.6": lambda x: np.where(x > 2, np.nan, 1.1 * x)}
    comparison = compare(reference, computed(faults=faults, reverse=True, given=reference))
    assert comparison.isolated and {each.growth for each in comparison.stages} == {None}
    owns = {each.stage: each.own for each in comparison.stages}
    assert owns["encoder.layers.2"] == pytest.approx(0.01, rel=1e-4)
    assert owns["encoder.layers.6"] is None and owns["tokens"] is None
    assert all(own < 1e-6 for stage, own in owns.items() if own is not None and stage != "encoder.layers.2")
    verdict = judge(comparison)
    assert verdict.largest_own == "encoder.layers.2" and "times that of the stage before" not in verdict.sentence
    end_to_end = compare(reference, computed(faults=faults))
    assert not end_to_end.isolated and end_to_end["encoder.layers.3"].growth is not None


def test_largest_error_is_named_when_it_is_not_at_the_first_faulty_stage() -> None:
    reference = computed()
    faults = {"encoder.layers.2": lambda x: 1.01 * x, "encoder.layers.5": lambda x: 1.5 * x}
    sentence = judge(compare(reference, computed(faults=faults, given=reference))).sentence
    assert sentence.startswith(
        "Computed from the reference's own inputs, encoder.layers.2 is the first stage beyond tolerance "
    )
    assert (
        "The largest error of one stage by itself is at encoder.layers.5, relative L2 0.5. The tokens agree."
        in sentence
    )


def test_isolated_results_of_the_whole_model_are_not_compared() -> None:
    reference = computed()
    candidate = computed(given=reference)
    part = Trace(
        {stage: candidate[stage] for stage in candidate if stage not in ("tokens", "text", "encoder.output")},
        candidate.meta,
    )
    assert compare(reference, part).warnings == (
        "not compared, since the whole model writes them, not one stage: tokens, text",
        "not compared, since the candidate does not have them: encoder.output",
    )


def test_float64_trace_must_use_the_same_mode_as_the_candidate() -> None:
    reference = computed()
    candidates = computed(reverse=True), computed(reverse=True, given=reference)
    truths = computed("float64"), computed("float64", given=reference)
    for candidate, truth in zip(candidates, truths, strict=True):
        assert noise_or_bug(reference, candidate, truth).first_bug is None
    for candidate, truth in zip(candidates, reversed(truths), strict=True):
        with pytest.raises(
            BadInput, match=r"from substituted stages and the .* end to end, or from other stages; expected"
        ):
            noise_or_bug(reference, candidate, truth)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_candidate_stages_can_be_substituted_into_the_reference(dtype: str) -> None:
    """A port that cannot compute from the reference's stages is compared from its own stages."""

    def distort(x: np.ndarray) -> np.ndarray:
        return x + 0.2 * x.std() * np.random.default_rng(1).standard_normal(x.shape)

    faulty = ["encoder.layers.2", "encoder.layers.5"]
    port = computed(dtype, reverse=True, faults=dict.fromkeys(faulty, distort))
    reference, exact = computed(given=port), computed("float64", given=port)
    comparison = compare(reference, port)
    assert comparison.isolated and comparison.inputs == "candidate" and comparison.warnings == ()
    verdict = judge(comparison, noise_or_bug(reference, port, exact))
    assert list(verdict.faulty_stages) == faulty
    assert verdict.sentence.startswith(
        "Computed from the candidate's own inputs, encoder.layers.2 is the first stage beyond tolerance "
    )
    clean = computed(dtype, reverse=True)
    reference, exact = computed(given=clean), computed("float64", given=clean)
    assert judge(compare(reference, clean), noise_or_bug(reference, clean, exact)).within


def test_float64_trace_must_use_the_same_substituted_stages() -> None:
    port, other = computed(reverse=True), computed(seed=1)
    reference = computed(given=port)
    for exact in (computed("float64"), computed("float64", given=other)):
        with pytest.raises(
            BadInput, match=r"^the reference was computed from substituted stages and the float64 trace end"
        ):
            noise_or_bug(reference, port, exact)
    comparison = compare(reference, other)
    assert not comparison.isolated and comparison.warnings == (
        "the reference was computed from the stages of another trace, which is not the candidate",
    )
