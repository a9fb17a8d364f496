"""Noise or bug, by the distances from float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parity.networks import LAYERS, META, NUMBERS, computed
from workbench.errors import BadInput
from workbench.parity import noise_or_bug
from workbench.session import Trace


@pytest.mark.parametrize("dtype", ["float32", "float16", "q8_0", "q4_0"])
@pytest.mark.parametrize("seed", range(3))
def test_other_rounding_is_noise(dtype: str, seed: int) -> None:
    found = noise_or_bug(computed("float32", seed), computed(dtype, seed, reverse=True), computed("float64", seed))
    assert [each.stage for each in found.stages] == NUMBERS
    assert found.first_bug is None and found.sentence.startswith("arithmetic noise: at logits the candidate is ")


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, LAYERS - 1),
    st.integers(0, 100),
    st.sampled_from([("float32", 1e-4), ("float16", 0.1), ("q8_0", 0.5)]),
)
def test_a_bug_is_found_at_its_stage(layer: int, seed: int, case: tuple[str, float]) -> None:
    stage, (dtype, size) = f"encoder.layers.{layer}", case
    bug = computed(dtype, seed, faults={stage: lambda x: x * (1 + size * np.sign(x))})
    found = noise_or_bug(computed("float32", seed), bug, computed("float64", seed))
    assert found.first_bug and found.first_bug.stage == stage
    assert found.first_bug.candidate > 10 * found.first_bug.reference


def test_distances_are_relative_and_from_float64() -> None:
    x = np.random.default_rng(0).standard_normal((30, 20))
    traces = [
        Trace({"encoder.output": 7 * x * (1 + error)}, META | {"dtype": dtype})
        for error, dtype in ((2e-7, "float32"), (-9e-7, "float32"), (0, "float64"))
    ]
    [stage] = noise_or_bug(*traces).stages
    assert stage.reference == pytest.approx(2e-7, rel=1e-6) and stage.candidate == pytest.approx(9e-7, rel=1e-6)
    assert stage.bound == pytest.approx(2e-6, rel=1e-6) and not stage.is_bug


def test_an_exact_reference_allows_a_rounding_all_the_same() -> None:
    x = np.random.default_rng(0).standard_normal((30, 20))
    exact = Trace({"llm.embeddings": x}, META | {"dtype": "float64"})
    rounded = Trace({"llm.embeddings": x.astype(np.float32)}, META)
    assert noise_or_bug(exact, rounded, exact).first_bug is None


def test_a_reference_that_is_off_itself_is_said_to_be() -> None:
    off = computed(faults={"encoder.layers.2": lambda x: 1.1 * x})
    found = noise_or_bug(off, computed(), computed("float64"))
    assert found.stages[4].reference_is_off
    assert found.sentence.startswith("the reference itself is 0.1 from float64 at encoder.layers.2, more than float32")


def test_what_cannot_be_measured_is_infinitely_far() -> None:
    cut = computed(faults={"encoder.layers.2": lambda x: x[1:], "encoder.output": lambda x: x * np.nan})
    found = noise_or_bug(computed(), cut, computed("float64"))
    distances = {each.stage: each.candidate for each in found.stages}
    assert distances["encoder.layers.2"] == distances["encoder.output"] == np.inf
    assert found.first_bug and found.first_bug.stage == "encoder.layers.2"


def test_the_third_trace_must_be_in_float64_and_of_the_same_input() -> None:
    with pytest.raises(
        BadInput, match=r"^the trace to tell noise from bugs by is of 'float32'; expected one computed in"
    ):
        noise_or_bug(computed(), computed(), computed())
    other = Trace(computed("float64"), {"dtype": "torch.float64", "input_digest": "other"})
    with pytest.raises(
        BadInput, match=r"^the float64 trace is of another input than the reference; expected the same$"
    ):
        noise_or_bug(computed(), computed(), other)
    with pytest.raises(BadInput, match=r"^the three traces have no stage of numbers in common"):
        noise_or_bug(computed(), computed(), Trace({"tokens": np.ones(2)}, {}))
