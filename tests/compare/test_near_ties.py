"""Tokens that differ at a near tie: by the logits, or by the reported alternatives of each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare.test_compare import without_stages
from tests.support.networks import META, computed
from workbench.compare import compare
from workbench.compare.noise.noise_or_bug import noise_or_bug
from workbench.compare.presets import PRESETS, Tolerances
from workbench.compare.report import rows
from workbench.compare.tokens.logprobs import LogprobMeasures
from workbench.compare.verdict import judge
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace


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
