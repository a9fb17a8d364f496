"""Comparison of two traces: which stages are compared, which traces are refused, and where an error enters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.networks import META, NUMBERS, STAGES, computed
from workbench.compare import compare
from workbench.compare.noise.noise_or_bug import noise_or_bug
from workbench.compare.presets import PRESETS, Limits, Tolerances
from workbench.compare.report import rows
from workbench.compare.stage import StageComparison
from workbench.compare.tokens.logprobs import LogprobMeasures
from workbench.compare.verdict import judge
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace


def without_stages(trace: Trace, *stages: str) -> Trace:
    return Trace({name: array for name, array in trace.items() if name not in stages}, trace.meta)


def other_input(trace: Trace) -> Trace:
    return Trace(trace, trace.meta | {"input_digest": "other"})


def test_stages_are_compared_in_computation_order() -> None:
    calls = []
    trace = computed()
    comparison = compare(
        trace, Trace(dict(reversed(list(trace.items()))), trace.meta), on_stage=lambda *each: calls.append(each)
    )
    assert [each.stage for each in comparison.stages] == STAGES
    assert calls == [(number, len(STAGES), stage) for number, stage in enumerate(STAGES)]
    assert (
        comparison.within and comparison.tokens_agree and comparison.first_token is None and comparison.warnings == ()
    )
    assert comparison["logits"].logits is not None
    with pytest.raises(KeyError, match="no stage 'x' was compared"):
        comparison["x"]


@pytest.mark.parametrize("stage", NUMBERS)
def test_own_error_and_growth_are_reported_at_the_stage_of_the_fault(stage: str) -> None:
    noisy = computed(faults={stage: lambda x: x + 0.01 * np.random.default_rng(1).standard_normal(x.shape)})
    comparison = compare(computed(), noisy)
    before = [
        each for each in comparison.stages[: [each.stage for each in comparison.stages].index(stage)] if each.numbers
    ]
    assert all(each.own == 0 for each in before)
    error = comparison[stage].numbers
    assert error and comparison[stage].own == pytest.approx(error.relative_l2)
    assert comparison[stage].jump == pytest.approx(error.relative_l2 / 1e-5)
    assert comparison[stage].growth is None and comparison[stage].before == (0 if before else None)
    assert max(comparison.stages, key=lambda each: each.jump or 0).stage == stage


@pytest.mark.parametrize("error", [1e-7, 1e-6, 1e-3])
def test_equal_errors_of_neighbouring_stages_have_growth_one(error: float) -> None:
    x = np.random.default_rng(0).standard_normal((40, 50))
    one, other = (Trace({f"encoder.layers.{n}": x * (1 + by) for n in range(3)}, META) for by in (0, error))
    comparison = compare(one, other)
    assert [each.growth for each in comparison.stages] == [None, pytest.approx(1), pytest.approx(1)]
    assert [row[7] for row in rows(comparison)] == ["growth", "", "×1", "×1"]
    assert max(each.jump or 0 for each in comparison.stages[1:]) == pytest.approx(1)


def test_growth_is_relative_to_the_previous_stage() -> None:
    x = np.random.default_rng(0).standard_normal((40, 50))
    errors = {"encoder.layers.0": 2e-7, "encoder.layers.1": 2e-6, "encoder.layers.2": 0.5}
    one, other = (Trace({name: x * (1 + by * e) for name, e in errors.items()}, META) for by in (0, 1))
    comparison = compare(one, other)
    assert [each.growth for each in comparison.stages] == [None, pytest.approx(10), pytest.approx(2.5e5)]
    sentence = judge(comparison).sentence
    assert "grows most at encoder.layers.2, from 2e-06 at the stage before to 0.5, 2.5e+05 times as much" in sentence
    assert "The error grows most at encoder.layers.2, to 0.5 at once" in judge(compare(*(
        Trace({"encoder.layers.2": trace["encoder.layers.2"]}, META) for trace in (one, other)))).sentence  # fmt: skip


def test_independent_errors_add_up_in_squares() -> None:
    rng = np.random.default_rng(0)
    x, first, second = rng.standard_normal((3, 400, 50))
    one = Trace({"encoder.layers.0": x, "encoder.layers.1": x}, META)
    other = Trace({"encoder.layers.0": x + 0.03 * first, "encoder.layers.1": x + 0.03 * first + 0.04 * second}, META)
    comparison = compare(one, other)
    assert comparison.stages[1].numbers and comparison.stages[1].numbers.relative_l2 == pytest.approx(0.05, rel=0.02)
    assert comparison.stages[1].own == pytest.approx(0.04, rel=0.02)


def test_stage_after_an_unmeasurable_stage_has_no_growth() -> None:
    comparison = compare(computed(), computed(faults={"encoder.layers.2": lambda x: np.where(x > 2, np.inf, x)}))
    assert comparison["encoder.layers.2"].growth is None and comparison["encoder.layers.3"].growth is None
    assert not comparison["encoder.layers.2"].passes and comparison["encoder.layers.1"].passes


def test_stage_patterns_select_stages_and_unmatched_patterns_are_refused() -> None:
    comparison = compare(computed(), computed(), stages="encoder.layers.*, tokens")
    assert [each.stage for each in comparison.stages] == [f"encoder.layers.{n}" for n in range(8)] + ["tokens"]
    with pytest.raises(BadInput, match=r"^no stage that both traces have matches decoder\.\*; they share frontend"):
        compare(computed(), computed(), stages="decoder.*")
    with pytest.raises(BadInput, match=r"^no stage that both traces have matches decoder\.\*; they share tokens"):
        compare(computed(), computed(), stages="tokens,decoder.*")


def test_missing_stages_raise_a_warning_and_common_stages_are_compared() -> None:
    comparison = compare(without_stages(computed(), "logits"), without_stages(computed(), "tokens", "encoder.output"))
    assert comparison.only_reference == ("encoder.output", "tokens") and comparison.only_candidate == ("logits",)
    assert comparison.warnings == (
        "not compared, since the candidate does not have them: encoder.output, tokens",
        "not compared, since the reference does not have them: logits",
    )
    assert comparison.tokens_agree is None and comparison.within
    with pytest.raises(
        BadInput, match=r"the traces have no stage in common: the reference has tokens, the candidate blk.0; a mapping"
    ):
        compare(without_stages(computed(), *[s for s in STAGES if s != "tokens"]), Trace({"blk.0": np.ones(2)}, META))


def test_traces_of_different_inputs_are_refused_without_force() -> None:
    message = "the traces are of different inputs (digests a1b2 and other)"
    with pytest.raises(BadInput) as caught:
        compare(computed(), other_input(computed()))
    assert str(caught.value) == f"{message}; expected two traces of one input, or --force to compare them anyway"
    assert compare(computed(), other_input(computed()), force=True).warnings == (message,)
    silent = Trace(computed(), {})
    assert compare(computed(), silent).warnings[0].startswith("one of the traces does not say what input")
    assert compare(silent, silent).warnings[0].startswith("neither trace says what input")


def test_unprintable_input_digest_is_quoted_in_the_error_message() -> None:
    with pytest.raises(BadInput, match=r"digests a1b2 and 'x\\x1b\[31m'\)"):
        compare(computed(), Trace(computed(), META | {"input_digest": "x\x1b[31m"}))


def test_different_layer_counts_are_refused_unless_stages_are_selected_or_forced() -> None:
    reference, candidate = computed(), computed(layers=5)
    with pytest.raises(
        BadInput, match=r"the reference has 8 encoder.layers and the candidate 5; expected traces of one"
    ):
        compare(reference, candidate)
    assert [each.stage for each in compare(reference, candidate, stages="encoder.layers.[0-4]").stages][
        -1
    ] == "encoder.layers.4"
    assert (
        compare(reference, candidate, force=True).warnings[0]
        == "the reference has 8 encoder.layers and the candidate 5"
    )
    assert compare(reference, without_stages(reference, "encoder.layers.3")).within, (
        "a stack with gaps is a choice of layers"
    )


def near_tie_traces(size: float, row: int = 10) -> tuple[Trace, Trace, int]:
    """Returns two traces and the row in which the two best tokens change places, by margins of `size`."""
    trace = computed()
    logits = trace["logits"].astype(np.float64)
    best, second = np.argsort(logits[row])[::-1][:2]
    logits[row, second] = logits[row, best] - size
    flipped = logits.copy()
    flipped[row, second] = logits[row, best] + size

    def stages_of(logits: np.ndarray) -> dict[str, np.ndarray]:
        return {"logits": logits, "tokens": logits.argmax(axis=1)}

    return Trace({**trace, **stages_of(logits)}, META), Trace({**trace, **stages_of(flipped)}, META), row


def test_tokens_that_differ_at_a_near_tie_pass() -> None:
    reference, candidate, row = near_tie_traces(1e-6)
    comparison = compare(reference, candidate)
    first = comparison.first_token
    assert first is not None and first.place == row and first.near_tie and first.choice is not None
    assert (first.reference, first.candidate) == (int(reference["tokens"][row]), int(candidate["tokens"][row]))
    assert (first.choice.reference_token, first.choice.candidate_token) == (first.reference, first.candidate)
    assert first.choice.reference_margin == pytest.approx(1e-6, rel=1e-3)
    assert (
        not comparison["tokens"].passes
        and comparison.passes(comparison["tokens"])
        and comparison.within
        and not comparison.tokens_agree
    )
    exact = compare(reference, candidate, Tolerances(PRESETS["exact"]))
    assert exact.first_token and exact.first_token.near_tie and not exact.within, "the logits are not the same"


def test_tokens_that_differ_at_a_clear_choice_do_not_pass() -> None:
    reference, candidate, _ = near_tie_traces(0.5)
    comparison = compare(reference, candidate)
    assert comparison.first_token and not comparison.first_token.near_tie and not comparison.within
    loose = compare(
        reference, candidate, Tolerances(PRESETS["f32"], (("logits", {"relative_l2": 1, "peak": 9, "kl": 9}),))
    )
    assert not loose.passes(loose["tokens"])


def test_near_tie_of_ctc_frames_is_a_near_tie_of_tokens() -> None:
    """CTC has more frames than tokens: `1 1 blank 2`, and `1 1 blank 3` by a near tie in the last frame."""
    logits = np.zeros((4, 5), np.float32)
    logits[[0, 1, 2, 3], [1, 1, 0, 2]] = 9
    logits[3, 3] = 9 - 1e-5
    other = logits.copy()
    other[3, 3] = 9 + 1e-5
    comparison = compare(
        Trace({"logits": logits, "tokens": np.array([1, 2])}, {}),
        Trace({"logits": other, "tokens": np.array([1, 3])}, {}),
    )
    first = comparison.first_token
    assert first and first.choice and (first.place, first.choice.row, first.near_tie) == (1, 3, True)
    assert (first.choice.reference_token, first.choice.candidate_token) == (2, 3)


def test_tokens_without_logits_get_no_near_tie() -> None:
    reference, candidate, _ = near_tie_traces(1e-6)
    comparison = compare(without_stages(reference, "logits"), without_stages(candidate, "logits"))
    assert comparison.first_token and comparison.first_token.choice is None and not comparison.first_token.near_tie
    assert not comparison.within


def test_different_prompt_tokens_do_not_pass_as_a_near_tie() -> None:
    reference, candidate, _ = near_tie_traces(1e-6)
    prompted = Trace({**candidate, "prompt.tokens": np.array([7, 8, 10])}, META)
    comparison = compare(reference, prompted)
    assert (
        comparison.first_token
        and comparison.first_token.near_tie
        and not comparison.passes(comparison["prompt.tokens"])
    )


def test_first_llm_token_uses_the_logits_of_the_last_prompt_row() -> None:
    reference, candidate, row = near_tie_traces(1e-6, row=23)
    embeddings = {"llm.embeddings": np.ones((24, 2))}
    first = {"tokens": reference["tokens"][row:]}, {"tokens": candidate["tokens"][row:]}
    traces = [Trace({**trace, **embeddings, **tokens}, META) for trace, tokens in zip((reference, candidate), first)]
    difference = compare(*traces).first_token
    assert (
        difference is not None
        and difference.place == 0
        and difference.choice
        and difference.choice.row == 23
        and difference.near_tie
    )


def test_speech_placeholder_in_the_prompt_gives_no_row_for_later_tokens() -> None:
    """Otherwise the comparison would use a row in the middle of the prompt."""
    reference, candidate, row = near_tie_traces(1e-6, row=23)
    prompt = {"prompt.tokens": np.array([5, -1, 6])}
    traces = [
        Trace({**trace, **prompt, "tokens": np.array([7, 8 + int(other), 9])}, META)
        for other, trace in enumerate((reference, candidate))
    ]
    difference = compare(*traces).first_token
    assert difference is not None and difference.place == 1 and difference.choice is None and row == 23


def trace_of_alternatives(trace: Trace, *steps: tuple[list[int], list[float]], **changes: Any) -> Trace:
    """Returns a trace with the likeliest tokens of each step instead of logits."""
    stages = {stage: trace[stage] for stage in trace if stage != "logits"}
    stages["tokens"] = np.array([ids[0] for ids, _ in steps])
    stages["tokens.alternatives"] = np.array([ids for ids, _ in steps])
    stages["tokens.logprobs"] = np.array([logprobs for _, logprobs in steps], np.float32)
    return Trace({**stages, **changes}, META)


SAME = ([1, 2, 3], [-0.5, -1.5, -3.0])


def test_alternatives_of_each_step_give_near_tie_margins() -> None:
    trace = computed()
    reference = trace_of_alternatives(trace, SAME, SAME, ([4, 5, 6], [-0.70000, -0.70003, -9.0]))
    candidate = trace_of_alternatives(trace, SAME, SAME, ([5, 4, 6], [-0.70001, -0.70003, -9.0]))
    comparison = compare(reference, candidate)
    first = comparison.first_token
    assert first is not None and (first.place, first.reference, first.candidate) == (2, 4, 5)
    assert first.near_tie and first.choice is not None and first.choice.row is None and comparison.within
    assert first.choice.reference_margin == pytest.approx(3e-5, rel=0.01)
    assert "The tokens differ from place 2 on: 4 in the reference, 5 in the candidate." in judge(comparison).sentence
    assert "This choice is a near tie (margins 3e-05 and 2e-05)." in judge(comparison).sentence
    clear = compare(reference, trace_of_alternatives(trace, SAME, SAME, ([5, 8, 6], [-0.1, -3.0, -9.0])))
    assert clear.first_token and not clear.first_token.near_tie and not clear.within
    assert "This choice is not a near tie (margins 3e-05 and at least 8.9)" in judge(clear).sentence


def test_logits_take_precedence_over_alternatives() -> None:
    reference, candidate, row = near_tie_traces(1e-6)
    steps = [([int(token), 39], [-0.1, -0.2]) for token in reference["tokens"]]
    traces = [
        Trace({**trace, **dict(list(trace_of_alternatives(trace, *steps).items())[-2:])}, META)
        for trace in (reference, candidate)
    ]
    difference = compare(*traces).first_token
    assert difference is not None and difference.choice is not None and difference.choice.row == row


@pytest.mark.parametrize(
    ("dtype", "within"), [("float32", False), ("float16", False), ("bfloat16", False), ("q4_0", True)]
)
def test_reported_log_probabilities_are_compared(dtype: str, within: bool) -> None:
    trace = computed()
    reference, candidate = (
        trace_of_alternatives(trace, SAME, SAME),
        trace_of_alternatives(trace, SAME, ([1, 2, 3], [-2.0, -3.0, -4.5])),
    )
    comparison = compare(reference, Trace(candidate, META | {"dtype": dtype}))
    logprobs = comparison["tokens.logprobs"]
    assert logprobs.kind == "logprobs" and logprobs.logprobs == LogprobMeasures(1.5, 1, 0.75, 2, 6)
    assert comparison.within is within and comparison["tokens"].passes and logprobs.growth is None
    if not within:
        name, sentence = comparison.tolerances.preset.name, judge(comparison).sentence
        assert sentence.startswith(f"tokens.logprobs is the first stage beyond tolerance {name}: ")
        assert "log-probabilities' root mean square difference in nats at the worst step 1.5, limit " in sentence
    [row] = [each for each in rows(comparison) if each[1] == "tokens.logprobs"]
    assert row[-1] == "2 steps, at most 1.5 nats apart, step 1"


def test_log_probabilities_are_matched_by_token_id() -> None:
    trace = computed()
    reference = trace_of_alternatives(trace, SAME)
    turned = trace_of_alternatives(trace, ([1, 3, 2], [-0.5, -3.0, -1.5]))
    fewer = trace_of_alternatives(trace, ([1, 2], [-0.5, -1.5]))
    for other in (turned, fewer):
        assert compare(reference, other)["tokens.logprobs"].logprobs == LogprobMeasures(
            0.0, 0, 0.0, 1, len(other["tokens.logprobs"][0])
        )
    strange = compare(reference, trace_of_alternatives(trace, ([1, 8, 9], [-0.5, -1.0, -3.0])))[
        "tokens.logprobs"
    ].logprobs
    assert strange is not None and strange.worst == pytest.approx(((1.5**2 + 2**2) / 3) ** 0.5)  # 2 and 8 at the least
    chosen = Trace({**without_stages(reference, "tokens.alternatives"), "tokens.logprobs": np.array([-0.5])}, META)
    assert compare(reference, chosen)["tokens.logprobs"].passes
    impossible = compare(reference, trace_of_alternatives(trace, ([1, 2, 3], [-0.5, -np.inf, -3.0])))["tokens.logprobs"]
    assert impossible.logprobs is not None and np.isinf(impossible.logprobs.worst) and not impossible.passes


def test_log_probabilities_after_the_first_different_token_are_ignored() -> None:
    trace = computed()
    reference = trace_of_alternatives(trace, SAME, ([4, 5, 6], [-0.70, -0.71, -9.0]), ([1, 2, 3], [-0.1, -9.0, -9.5]))
    candidate = trace_of_alternatives(trace, SAME, ([5, 4, 6], [-0.70, -0.71, -9.0]), ([1, 2, 3], [-9.0, -0.1, -9.5]))
    logprobs = compare(reference, candidate)["tokens.logprobs"].logprobs
    assert (
        logprobs is not None
        and logprobs.steps == 2
        and logprobs.worst == pytest.approx((2 / 3) ** 0.5 * 0.01, rel=1e-3)
    )


def test_missing_alternatives_raise_a_warning() -> None:
    trace = computed()
    reference, candidate = trace_of_alternatives(trace, SAME), trace_of_alternatives(trace, SAME)
    for one, other, lacking_side in (
        (reference, without_stages(candidate, "tokens.alternatives", "tokens.logprobs"), "candidate"),
        (without_stages(reference, "tokens.logprobs"), candidate, "reference"),
    ):
        comparison = compare(one, other)
        assert comparison.within
        assert comparison.warnings == (f"not compared, since the {lacking_side} does not have them: tokens.logprobs",)
    assert compare(reference, without_stages(candidate, "tokens.alternatives")).warnings == (
        "not compared, since the candidate does not name the tokens (tokens.alternatives): tokens.logprobs",
    )
    candidate = trace_of_alternatives(trace, ([1, 3, 2], [-0.7, -2.0, -8.0]))
    exact = Trace(dict(reference), META | {"dtype": "float64"})
    assert not [each for each in noise_or_bug(reference, candidate, exact).stages if each.stage.startswith("tokens")]
    assert [each.stage for each in compare(reference, candidate, stages="tokens.*").stages] == ["tokens.logprobs"]


def test_alternatives_on_one_side_only_give_no_margins() -> None:
    trace = computed()
    reference, candidate = (
        trace_of_alternatives(trace, SAME),
        trace_of_alternatives(trace, ([2, 1, 3], [-0.5, -0.6, -9.0])),
    )
    for one, other in (
        (without_stages(reference, "tokens.logprobs"), candidate),
        (reference, without_stages(candidate, "tokens.alternatives")),
    ):
        first = compare(one, other).first_token
        assert first is not None and first.choice is None and not first.near_tie
    short = compare(reference, trace_of_alternatives(trace, SAME, SAME)).first_token
    assert short is not None and (short.reference, short.candidate, short.choice) == (None, 1, None)
    torn = trace_of_alternatives(trace, ([2, 1], [-0.5, -0.6]), **{"tokens.logprobs": np.zeros((1, 3))})
    with pytest.raises(BadInput, match=r"tokens.alternatives holds int64 of shape \(1, 2\) and tokens.lo"):
        compare(torn, reference)


def test_tolerance_checks_per_stage_stay_few_with_many_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    plain = StageComparison._passes

    def count_call(self: StageComparison, limits: Limits) -> bool:
        nonlocal calls
        calls += 1
        return plain(self, limits)

    monkeypatch.setattr(StageComparison, "_passes", count_call)
    trace = Trace({f"encoder.layers.{n}": np.ones(1) for n in range(300)}, META)
    assert compare(trace, trace).within
    assert calls < 5 * 300
