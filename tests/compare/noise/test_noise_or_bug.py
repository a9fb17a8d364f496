"""Rounding noise or bug: the candidate's distance from float64 against the reference's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.networks import LAYERS, META, NUMBERS, computed
from workbench.compare import noise_or_bug
from workbench.compare.noise.limits import END_TO_END_FACTORS, FRONT_END_ERROR, ISOLATED_FACTORS
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace


@pytest.mark.parametrize("dtype", ["float32", "float16", "q8_0", "q4_0"])
@pytest.mark.parametrize("seed", range(3))
def test_different_dtype_and_order_of_sums_are_noise(dtype: str, seed: int) -> None:
    report = noise_or_bug(computed("float32", seed), computed(dtype, seed, reverse=True), computed("float64", seed))
    assert [each.stage for each in report.stages] == NUMBERS
    assert report.first_bug is None and report.sentence.startswith(
        "arithmetic noise: at logits the candidate's distance from float64 is "
    )


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, LAYERS - 1),
    st.integers(0, 100),
    st.sampled_from([("float32", 1e-4), ("float16", 0.1), ("q8_0", 0.5)]),
)
def test_a_bug_is_found_at_its_stage(layer: int, seed: int, case: tuple[str, float]) -> None:
    stage, (dtype, size) = f"encoder.layers.{layer}", case
    bug = computed(dtype, seed, faults={stage: lambda x: x * (1 + size * np.sign(x))})
    report = noise_or_bug(computed("float32", seed), bug, computed("float64", seed))
    assert report.first_bug and report.first_bug.stage == stage
    assert report.first_bug.candidate > 10 * report.first_bug.reference


def test_distances_are_relative_and_from_float64() -> None:
    x = np.random.default_rng(0).standard_normal((30, 20))
    traces = [
        Trace({"encoder.output": 7 * x * (1 + error)}, META | {"dtype": dtype})
        for error, dtype in ((2e-7, "float32"), (-7e-7, "float32"), (0, "float64"))
    ]
    [stage] = noise_or_bug(*traces).stages
    assert stage.reference == pytest.approx(2e-7, rel=1e-6) and stage.candidate == pytest.approx(7e-7, rel=1e-6)
    factors = END_TO_END_FACTORS.for_positions(len(x))
    assert stage.bound == pytest.approx(factors.whole * 2e-7, rel=1e-6) and not stage.is_bug
    assert (
        stage.typical_bound == pytest.approx(factors.typical * stage.reference_typical)
        and stage.reference_typical < 3e-7
    )


def test_exact_reference_allows_float32_rounding() -> None:
    x = np.random.default_rng(0).standard_normal((30, 20))
    exact = Trace({"llm.embeddings": x}, META | {"dtype": "float64"})
    rounded = Trace({"llm.embeddings": x.astype(np.float32)}, META)
    assert noise_or_bug(exact, rounded, exact).first_bug is None


def test_reference_far_from_float64_is_reported() -> None:
    faulty = computed(faults={"encoder.layers.2": lambda x: 1.1 * x})
    report = noise_or_bug(faulty, computed(), computed("float64"))
    assert report.stages[4].reference_is_off
    assert report.sentence.startswith(
        "at encoder.layers.2 the distance of the reference from float64 is 0.1, more than"
    )


def traces(*arrays: np.ndarray, stage: str = "encoder.output", isolated: bool = False) -> list[Trace]:
    """Returns traces of one stage: reference, candidate, and the reference in float64."""
    metas = ({}, {"isolated": isolated}, {"isolated": isolated, "dtype": "float64"})
    return [
        Trace({stage: array}, META | {"dtype": "float32"} | meta) for array, meta in zip(arrays, metas, strict=True)
    ]


@pytest.mark.parametrize("isolated", [False, True])
def test_small_change_of_every_position_is_found_beside_few_noisy_positions(isolated: bool) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((40, 30))
    amplified = np.where(np.arange(40) < 2, 100, 1)[:, None]  # rounding, in two rows much larger

    def rounded(size: float) -> np.ndarray:
        return x * (1 + size * amplified * draw.standard_normal(x.shape))

    factor = (ISOLATED_FACTORS if isolated else END_TO_END_FACTORS).for_positions(len(x)).typical
    [noise] = noise_or_bug(*traces(rounded(2e-7), rounded(2e-7), x, isolated=isolated)).stages
    assert not noise.is_bug
    everywhere = noise_or_bug(*traces(rounded(2e-7), rounded(2e-7) * (1 + 2 * factor * 2e-7), x, isolated=isolated))
    [bug] = everywhere.stages
    assert bug.is_bug and bug.candidate <= bug.bound
    assert bug.deciding == (bug.candidate_typical, bug.reference_typical, bug.typical_bound, " at the median position")
    assert "the candidate's distance from float64 at the median position is " in everywhere.sentence


@pytest.mark.parametrize("dtype", ["float32", "q8_0"])
def test_one_wrong_position_among_many_is_found(dtype: str) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((6000, 20))
    swapped = x.copy()
    swapped[[7, 8]] = x[[8, 7]]
    metas = ({"dtype": "float32"}, {"dtype": dtype}, {"dtype": "float64"})
    sides = [Trace({"llm.embeddings": array}, META | meta) for array, meta in zip((x, x, x), metas)]
    assert noise_or_bug(*sides).first_bug is None
    report = noise_or_bug(sides[0], Trace({"llm.embeddings": swapped}, sides[1].meta), sides[2])
    [stage] = report.stages
    assert stage.is_bug and stage.worst_position in (7, 8)
    if dtype == "q8_0":
        assert stage.candidate <= stage.bound
        assert stage.deciding[:3] == (stage.candidate_worst, stage.reference_worst, stage.worst_bound)
        assert f"from float64 at position {stage.worst_position} is " in report.sentence


def test_typical_distance_ignores_zero_positions_and_equals_whole_for_1d_arrays() -> None:
    x = np.zeros((6, 4))
    x[5] = 1
    [stage] = noise_or_bug(*traces(x, x * (1 + 1e-7), x)).stages
    assert stage.candidate_typical == pytest.approx(1e-7)
    [stage] = noise_or_bug(*traces(x[:, 0], x[:, 0] + 1e-7, x[:, 0])).stages
    assert stage.candidate_typical == stage.candidate


def test_bounds_are_wider_for_few_positions() -> None:
    draw = np.random.default_rng(0)
    for positions, bug in ((5, False), (500, True)):
        x = draw.standard_normal((positions, 20))
        [stage] = noise_or_bug(*traces(x * (1 + 5e-7), x * (1 + 5e-6), x)).stages
        assert stage.is_bug == bug
    many, few = (END_TO_END_FACTORS.for_positions(positions) for positions in (10_000, 1))
    assert END_TO_END_FACTORS.whole < many.whole < 1.01 * END_TO_END_FACTORS.whole < few.whole
    assert many.typical < few.typical


def test_median_bound_of_1d_arrays_equals_the_whole_bound() -> None:
    x = np.random.default_rng(0).standard_normal(3000)
    between = (END_TO_END_FACTORS.typical + END_TO_END_FACTORS.whole) / 2
    [stage] = noise_or_bug(*traces(x * (1 + 1e-6), x * (1 + between * 1e-6), x)).stages
    assert stage.typical_bound == stage.bound and not stage.is_bug


@pytest.mark.parametrize("isolated", [False, True])
def test_fault_barely_within_its_bound_is_named_before_the_stage_of_growth(isolated: bool) -> None:
    draw = np.random.default_rng(0)
    names = ["encoder.input", "encoder.layers.0", "encoder.layers.1", "encoder.layers.2"]
    x = {name: draw.standard_normal((4000, 8)) for name in names}

    def scaled(*errors: float) -> dict[str, np.ndarray]:
        return {name: x[name] * (1 + error) for name, error in zip(names, errors)}

    metas = ({}, {"isolated": isolated}, {"isolated": isolated, "dtype": "float64"})
    bound = 1e-6 * (ISOLATED_FACTORS if isolated else END_TO_END_FACTORS).typical
    sides = [scaled(1e-6, 1e-6, 1e-6, 1e-6), scaled(1e-6, 0.9 * bound, 3 * bound, 9 * bound), x]
    report = noise_or_bug(*[Trace(side, META | {"dtype": "float32"} | meta) for side, meta in zip(sides, metas)])
    if isolated:  # where nothing grows
        assert [each.stage for each in report.bugs] == names[2:]
        return
    assert [each.stage for each in report.bugs] == names[1:]
    assert report.first_bug and report.first_bug.leads_to == names[2]
    assert "noise explains 4e-06 here, and encoder.layers.1 is beyond what noise explains" in report.sentence
    assert "encoder.layers.0 the candidate's distance from float64 at the median position is 3.6e-06" in report.sentence


@pytest.mark.parametrize("key", ["quantization", "dtype"])
def test_quantised_weights_do_not_widen_front_end_bounds(key: str) -> None:
    draw = np.random.default_rng(0)
    x = {"frontend.features": draw.standard_normal((300, 20)), "encoder.input": draw.standard_normal((300, 20))}
    sides = [
        Trace({name: value * (1 + error) for name, value in x.items()}, META | meta)
        for error, meta in ((1e-7, {"dtype": "float32"}), (2e-4, {key: "f16"}), (0, {"dtype": "float64"}))
    ]
    report = noise_or_bug(*sides)
    assert [each.is_bug for each in report.stages] == [key == "quantization", False]


def test_float32_stages_of_a_float64_trace_and_later_ones_have_wider_bounds() -> None:
    draw = np.random.default_rng(0)
    x, y = (draw.standard_normal((30, 20)) for _ in range(2))
    error = 3e-6 * draw.standard_normal(x.shape)
    stages = [
        {"frontend.fbank": x.astype(np.float32), "encoder.input": y},
        {"frontend.fbank": x + error, "encoder.input": y + error},
        {"frontend.fbank": x.astype(np.float32), "encoder.input": y},
    ]
    metas = ({"dtype": "float32"}, {"dtype": "float32"}, {"dtype": "float64"})
    sides = [Trace(stage, META | meta) for stage, meta in zip(stages, metas)]
    assert noise_or_bug(*sides).first_bug is None
    own = noise_or_bug(sides[0], Trace({**stages[0], "encoder.input": y + error}, META), sides[2])
    assert own.first_bug and own.first_bug.stage == "encoder.input"
    fault = noise_or_bug(
        sides[0], Trace({**stages[0], "frontend.fbank": x * (1 + 9 * FRONT_END_ERROR)}, META), sides[2]
    )
    assert fault.first_bug and fault.first_bug.stage == "frontend.fbank"


def test_bugs_after_an_inaccurate_reference_stage_are_not_reported() -> None:
    def faulty(x: np.ndarray) -> np.ndarray:
        return 1.1 * x

    late = noise_or_bug(
        computed(faults={"encoder.layers.2": faulty}),
        computed(faults={"encoder.layers.4": faulty}),
        computed("float64"),
    )
    assert late.first_bug is None and late.bugs == () and "noise cannot be told from a bug" in late.sentence
    early = noise_or_bug(
        computed(faults={"encoder.layers.4": faulty}),
        computed(faults={"encoder.layers.2": faulty}),
        computed("float64"),
    )
    assert early.first_bug and early.first_bug.stage == "encoder.layers.2"


def test_unmeasurable_stages_have_infinite_distance() -> None:
    cut = computed(faults={"encoder.layers.2": lambda x: x[1:], "encoder.output": lambda x: x * np.nan})
    report = noise_or_bug(computed(), cut, computed("float64"))
    distances = {each.stage: each.candidate for each in report.stages}
    assert distances["encoder.layers.2"] == distances["encoder.output"] == np.inf
    assert report.first_bug and report.first_bug.stage == "encoder.layers.2"
    assert "encoder.layers.2 of the candidate has another shape, or values that are not finite" in report.sentence
    assert "inf" not in report.sentence.replace("infinite", "").replace("finite", "")


def test_third_trace_without_float64_or_the_same_input_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"^the trace that tells noise from bugs states the dtype 'float32'; expected one computed in"
    ):
        noise_or_bug(computed(), computed(), computed())
    other = Trace(computed("float64"), {"dtype": "torch.float64", "input_digest": "other"})
    with pytest.raises(
        BadInput, match=r"^the float64 trace and the reference have different inputs; expected the same input$"
    ):
        noise_or_bug(computed(), computed(), other)
    with pytest.raises(BadInput, match=r"^the three traces have no stage of numbers in common"):
        noise_or_bug(computed(), computed(), Trace({"tokens": np.ones(2)}, {}))


def test_spoken_answer_noise_is_reported_at_the_llm_states_not_the_codec() -> None:
    """The codec's decoder starts from ids, so its sound does not contain the language model's error."""
    draw = np.random.default_rng(0)
    states, sound = draw.standard_normal((20, 30)), draw.standard_normal(3200)
    one, other, truth = (
        Trace({"answer.norm": states * (1 + error), "codec.audio": sound * (1 + error / 9)}, META | {"dtype": dtype})
        for error, dtype in ((2e-7, "float32"), (-3e-7, "float32"), (0, "float64"))
    )
    assert noise_or_bug(one, other, truth).sentence.startswith(
        "arithmetic noise: at answer.norm the candidate's distance from float64 is 3e-07"
    )
