"""The verdict names the stage with the planted fault, and its sentence describes the result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.networks import LAYERS, META, NUMBERS, computed
from workbench.compare import compare, judge, noise_or_bug
from workbench.compare.presets import PRESETS, Tolerances
from workbench.trace.trace import Trace

FAULTS = {
    "a scale": lambda x: 1.01 * x,
    "a transposed corner": lambda x: np.vstack([np.hstack([x[:8, :8].T, x[:8, 8:]]), x[8:]]),
    "a channel zeroed": lambda x: x * (np.arange(x.shape[1]) != 3),
    "rows one late": lambda x: np.vstack([x[:1], x[:-1]]),
    "an overflow": lambda x: np.where(x > x.max() * 0.99, np.inf, x),
    "a constant": lambda x: x + 0.02,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stage", NUMBERS)
def test_planted_fault_is_reported_at_its_stage(stage: str, fault: str) -> None:
    faulty = computed(faults={stage: FAULTS[fault]}, reverse=True)
    verdict = judge(compare(computed(), faulty))
    assert verdict.first_divergent == stage and not verdict.within
    assert verdict.sentence.startswith(f"{stage} is the first stage beyond tolerance f32: ")
    if fault != "an overflow":
        assert verdict.largest_own == stage


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, LAYERS - 1),
    st.integers(0, 1000),
    st.sampled_from([("float32", 0.01), ("float16", 0.1), ("q8_0", 0.5)]),
)
def test_layer_fault_is_distinguished_from_noise(layer: int, seed: int, case: tuple[str, float]) -> None:
    dtype, size = case
    stage = f"encoder.layers.{layer}"

    def fault(x: np.ndarray) -> np.ndarray:
        return x + size * x.std() * np.random.default_rng(seed).standard_normal(x.shape)

    verdict = judge(compare(computed("float32", seed), computed(dtype, seed, faults={stage: fault})))
    assert verdict.first_divergent == verdict.largest_own == stage


def test_faults_of_front_end_and_prompt_are_reported_before_layer_faults() -> None:
    def tripled(x: np.ndarray) -> np.ndarray:
        return x * 3

    prompt = computed(faults={"prompt.tokens": lambda ids: ids[::-1], "encoder.input": tripled})
    reordered = Trace({"encoder.input": prompt["encoder.input"], **prompt}, META)
    verdict = judge(compare(reordered, computed()))
    assert verdict.first_divergent == "prompt.tokens" and "token error rate 0.67, limit 0" in verdict.sentence
    both = computed(faults={"frontend.fbank": lambda x: x + 1, "prompt.tokens": lambda ids: ids[::-1]})
    assert judge(compare(computed(), both)).first_divergent == "frontend.fbank"


def test_equal_traces_are_identical_and_noise_is_within_tolerance() -> None:
    same = judge(compare(computed(), computed()))
    assert same.sentence == "Identical: 15 stages. The tokens agree." and same.within
    assert same.first_divergent is None and same.largest_own is None and same.tokens_agree and same.details == ()
    noise = judge(compare(computed(), computed(reverse=True)))
    assert noise.within and noise.largest_own is None
    assert noise.sentence.startswith("Within tolerance f32: 15 stages, relative L2 at most ")


def test_verdict_sentence_describes_the_fault() -> None:
    scaled = judge(compare(computed(), computed(faults={"encoder.input": lambda x: 8 * x}))).sentence
    assert "It is 8 times the reference" in scaled
    assert "The error grows most at encoder.input, from 0 at the stage before to 7." in scaled
    cut = judge(compare(computed(), computed(faults={"encoder.layers.3": lambda x: x[1:]})))
    assert "the reference has 1 row more at the beginning" in cut.sentence
    assert cut.details[0].startswith("encoder.layers.3: the shapes are 24×64 and 23×64")
    overflow = judge(
        compare(computed(), computed(faults={"encoder.layers.3": lambda x: x * np.where(x > 2, np.nan, 1)}))
    )
    assert "values of the candidate and 0 of the reference are infinite or not a number" in overflow.sentence
    one = np.ones((2, 3))
    one[0, 0] = np.inf
    sentence = judge(compare(Trace({"a": np.ones((2, 3))}, {}), Trace({"a": one}, {}))).sentence
    assert "1 value of the candidate and 0 of the reference are infinite or not a number" in sentence


def test_verdict_sentence_states_whether_tokens_agree() -> None:
    other = judge(compare(computed(), computed(faults={"encoder.layers.3": lambda x: -x})))
    assert other.tokens_agree is False
    assert "The tokens differ from place " in other.sentence and "not a near tie (margins " in other.sentence
    no_logits = [Trace({k: v for k, v in t.items() if k != "logits"}, META) for t in (computed(), computed(seed=1))]
    assert "The traces hold neither logits nor alternatives for that choice" in judge(compare(*no_logits)).sentence
    ended = computed(faults={"tokens": lambda ids: ids[:3]})
    assert ": 21 in the reference, the end in the candidate." in judge(compare(computed(), ended)).sentence
    no_tokens = [Trace({"encoder.input": t["encoder.input"]}, META) for t in (computed(), computed())]
    assert judge(compare(*no_tokens)).sentence == "Identical: 1 stage."


def test_bug_within_tolerance_does_not_pass() -> None:
    exact, reference = computed("float64"), computed()
    bug = computed(faults={"encoder.layers.3": lambda x: x * (1 + 3e-5)})
    comparison = compare(reference, bug)
    assert judge(comparison).within
    verdict = judge(comparison, noise_or_bug(reference, bug, exact))
    assert not verdict.within and verdict.first_divergent is None
    assert (
        "at encoder.layers.3 the candidate's distance from float64 is 3e-05; that of the reference is "
        in verdict.sentence
    )


def test_bug_is_named_before_the_stage_where_it_exceeds_tolerance() -> None:
    exact, reference = computed("float64"), computed()
    small = {"encoder.layers.3": lambda x: x * (1 + 3e-5), "encoder.output": lambda x: 1.01 * x}
    bug = computed(faults=small)
    comparison = compare(reference, bug)
    verdict = judge(comparison, noise_or_bug(reference, bug, exact))
    assert (verdict.faulty_stage, verdict.found_by) == ("encoder.layers.3", "float64")
    assert (verdict.first_divergent, verdict.first_bug) == ("encoder.output", "encoder.layers.3")
    assert verdict.faulty_stages == ("encoder.layers.3",)
    assert verdict.sentence.startswith("encoder.layers.3 is the first stage in error, though within tolerance f32")
    assert "encoder.output is the first stage beyond tolerance: relative L2 0.01, limit 0.0001" in verdict.sentence
    without_float64 = judge(comparison)
    assert (without_float64.faulty_stage, without_float64.found_by, without_float64.first_bug) == (
        "encoder.output",
        "tolerance",
        None,
    )


def test_fault_found_by_tolerance_and_float64_is_reported_once() -> None:
    reference, bug = computed(), computed(faults={"encoder.layers.3": lambda x: 1.01 * x})
    verdict = judge(compare(reference, bug), noise_or_bug(reference, bug, computed("float64")))
    assert (verdict.faulty_stage, verdict.found_by) == ("encoder.layers.3", "tolerance and float64")
    assert verdict.sentence.startswith("encoder.layers.3 is the first stage beyond tolerance f32: ")
    assert verdict.sentence.count("A bug, not noise") == 1
    clean = judge(compare(reference, reference), noise_or_bug(reference, reference, computed("float64")))
    assert (clean.faulty_stage, clean.found_by, clean.faulty_stages) == (None, None, ())


def test_prompt_token_fault_is_reported_before_float64_bugs() -> None:
    other = computed(faults={"prompt.tokens": lambda ids: ids[::-1], "encoder.layers.3": lambda x: 1.01 * x})
    verdict = judge(compare(computed(), other), noise_or_bug(computed(), other, computed("float64")))
    assert (verdict.faulty_stage, verdict.found_by) == ("prompt.tokens", "tolerance")
    assert verdict.first_bug == "encoder.layers.3"


def test_isolated_comparison_names_every_faulty_stage() -> None:
    def as_isolated(trace: Trace) -> Trace:
        return Trace(trace, trace.meta | {"isolated": True})

    exact, reference = computed("float64"), computed()
    bugs = {"encoder.layers.3": lambda x: x * (1 + 1e-5), "encoder.layers.5": lambda x: 1.01 * x}
    clean = {stage: computed(faults={stage: change})[stage] for stage, change in bugs.items()}
    other = as_isolated(Trace({**reference, **clean}, reference.meta))
    verdict = judge(compare(reference, other), noise_or_bug(reference, other, as_isolated(exact)))
    assert verdict.faulty_stages == ("encoder.layers.3", "encoder.layers.5")
    assert verdict.sentence.startswith("Computed from the reference's own inputs, encoder.layers.3 is the first stage ")
    assert "encoder.layers.5 is the first stage beyond tolerance: relative L2 0.01" in verdict.sentence


def test_isolated_comparison_lists_the_stages_beyond_tolerance_with_their_hints() -> None:
    reference, meta = computed(), META | {"isolated": True}
    changed = {"encoder.layers.3": lambda x: x * (1 + 0.1 * x), "encoder.layers.5": lambda x: 1.01 * x}
    faults = {stage: computed(faults={stage: change})[stage] for stage, change in changed.items()}
    sentence = judge(compare(reference, Trace({**reference, **faults}, meta))).sentence
    assert " stages are beyond tolerance: encoder.layers.3 and encoder.layers.5." in sentence
    assert " encoder.layers.5: it is 1.01 times the reference; a difference of " in sentence


def test_stage_beyond_tolerance_is_no_fault_if_float64_shows_only_rounding() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((400, 30))
    rounded = [x + 2e-4 * draw.standard_normal(x.shape) for _ in range(2)]  # as in a network that amplifies rounding
    for dtype, found_by in (("float32", None), ("float16", "tolerance")):
        reference, candidate, exact = (
            Trace({"encoder.output": array}, META | {"dtype": kind})
            for array, kind in ((rounded[0], "float32"), (rounded[1], dtype), (x, "float64"))
        )
        comparison = compare(reference, candidate, Tolerances(PRESETS["f32"]))
        assert judge(comparison).faulty_stage == "encoder.output"
        verdict = judge(comparison, noise_or_bug(reference, candidate, exact))
        assert verdict.found_by == found_by and not verdict.within and verdict.first_divergent == "encoder.output"
        assert ("so no stage is at fault" in verdict.sentence) == (found_by is None)


def test_error_similar_to_the_peer_model_is_within() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((2, 400, 30))
    truth = {"encoder.layers.0": x, "encoder.output": y}

    def noisy(seed: int, dtype: str, error: float) -> Trace:
        noise = np.random.default_rng(seed).standard_normal((400, 30))
        return Trace({"encoder.layers.0": x + error * noise, "encoder.output": y * (1 + 1e-9)}, META | {"dtype": dtype})

    reference, exact = (Trace(truth, META | {"dtype": dtype}) for dtype in ("float32", "float64"))
    peer, port = noisy(1, "bfloat16", 0.08), noisy(2, "bfloat16", 0.08)
    noise = noise_or_bug(reference, port, exact, peer=peer)
    verdict = judge(compare(reference, port), noise)
    assert verdict.within and verdict.faulty_stage is None and verdict.first_divergent == "encoder.layers.0"
    sentence = (
        "As near to float64 as this model in bfloat16: 2 stages, though encoder.layers.0 is beyond tolerance bf16, "
        "relative L2 "
    )
    assert verdict.sentence.startswith(sentence)
    by_preset = judge(compare(reference, port, Tolerances(PRESETS["bf16"])), noise)
    assert not by_preset.within and ", so no stage is at fault." in by_preset.sentence
    distant = noisy(2, "bfloat16", 0.4)
    bug = judge(compare(reference, distant), noise_or_bug(reference, distant, exact, peer=peer))
    assert not bug.within and bug.faulty_stage == "encoder.layers.0"


def test_isolated_comparison_names_tokens_but_not_their_text() -> None:
    def as_isolated(trace: Trace) -> Trace:
        return Trace(trace, trace.meta | {"isolated": True})

    other = computed(faults={"tokens": lambda ids: ids + 1, "text": lambda text: np.array("something else")})
    verdict = judge(compare(computed(), as_isolated(other)))
    assert verdict.faulty_stages == ("tokens",)
    assert "tokens is the first stage beyond tolerance" in verdict.sentence
    text = judge(compare(computed(), as_isolated(computed(faults={"text": lambda text: np.array("something else")}))))
    assert text.faulty_stages == ("text",)


def test_isolated_comparison_names_faults_found_only_by_float64() -> None:
    def as_isolated(trace: Trace) -> Trace:
        return Trace(trace, trace.meta | {"isolated": True})

    reference = computed()
    small = {f"encoder.layers.{n}": (lambda x: x * (1 + 3e-5)) for n in range(1, 7)}
    other = {"encoder.layers.0": lambda x: 1.01 * x} | small
    bug = as_isolated(computed(faults=other, given=reference))
    verdict = judge(
        compare(reference, bug), noise_or_bug(reference, bug, as_isolated(computed("float64", given=reference)))
    )
    assert verdict.faulty_stages == tuple(f"encoder.layers.{n}" for n in range(7))
    assert (
        "encoder.layers.1, encoder.layers.2, encoder.layers.3 and 3 more are within tolerance, but no noise either."
        in verdict.sentence
    )


def test_different_tokens_from_equal_logits_are_attributed_to_decoding() -> None:
    def without_prompt(trace: Trace) -> Trace:
        return Trace({stage: trace[stage] for stage in trace if stage != "prompt.tokens"}, META)

    other = computed(faults={"tokens": lambda ids: ids + 1})
    sentence = judge(compare(*map(without_prompt, (computed(), other)))).sentence
    assert "Every row of the logits has the same best token on both sides, so the decoding differs." in sentence
    more = {"logits": lambda x: np.vstack([x, x[-1:]]), "tokens": lambda ids: ids + 1}
    longer = judge(compare(*map(without_prompt, (computed(), computed(faults=more))))).sentence
    assert "Logits of different shapes do not show that choice" in longer
    with_prompt = judge(compare(computed(), other)).sentence
    assert "The traces hold no row of logits for that choice" in with_prompt


def test_growth_of_rounding_is_not_named_beside_another_shape_or_other_tokens() -> None:
    def add_row(array: np.ndarray) -> np.ndarray:
        return np.vstack([array, array[-1:]])

    noisy = computed(faults={"encoder.layers.1": lambda x: x * np.float32(1 + 5e-5)})  # within tolerance
    longer = {**noisy, "frontend.fbank": add_row(noisy["frontend.fbank"])}
    sentence = judge(compare(computed(), Trace(longer, {}))).sentence
    assert "the candidate has 1 row more at the end" in sentence and "grows most" not in sentence
    ids = {**noisy, "tokens": np.append(noisy["tokens"], 1)}
    sentence = judge(compare(computed(), Trace(ids, {}))).sentence
    assert sentence.startswith("tokens is the first stage beyond") and "grows most" not in sentence


def test_candidate_without_a_precision_is_told_of_coarser_arithmetic() -> None:
    bare = {key: value for key, value in META.items() if key != "dtype"}
    coarse = Trace(dict(computed("bfloat16")), bare)
    in_float32 = {stage: computed()[stage] for stage in ("encoder.input", "encoder.layers.0")}
    verdict = judge(compare(computed(), coarse))
    assert not verdict.within and "But its arrays are within tolerance " in verdict.sentence
    assert "bfloat16, float16 or 8 bits, as some do by default, name its precision (--precision b" in verdict.sentence
    for candidate, tolerances in (
        (Trace(dict(computed("bfloat16")), bare | {"dtype": "float32"}), None),  # it names its precision
        (coarse, Tolerances(PRESETS["f32"])),  # the tolerance was asked for
        (Trace(dict(computed(faults={"encoder.layers.0": FAULTS["rows one late"]})), bare), None),
        (Trace({**computed("bfloat16"), **in_float32}, bare), None),  # its first layer is not rounded
    ):
        assert "name its precision" not in judge(compare(computed(), candidate, tolerances)).sentence


def test_stage_that_halves_the_search_is_named_for_a_candidate_with_few_stages() -> None:
    def sentence(*names: str) -> str:
        faulty = computed(faults={"encoder.layers.1": lambda x: x + np.sin(np.arange(x.size)).reshape(x.shape)})
        return judge(compare(computed(), Trace({name: faulty[name] for name in names}, META))).sentence

    layers = [f"encoder.layers.{n}" for n in range(LAYERS)]
    few = sentence("encoder.input", "encoder.output", "logits")
    middle = layers[LAYERS // 2]
    assert f"The candidate has none of the {LAYERS} stages between encoder.input and encoder.output: " in few
    assert f": {middle}, in their middle, would halve the search." in few
    assert "would halve the search" in sentence("encoder.output")
    assert "halve the search" not in sentence("encoder.input", *layers, "encoder.output")
    assert "halve the search" not in sentence("encoder.input", *layers[:2])
