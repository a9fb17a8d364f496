"""Comparison of two traces: which stages are compared, which traces are refused, and where an error enters."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.networks import META, NUMBERS, STAGES, computed
from workbench.compare import compare
from workbench.compare.presets import Limits
from workbench.compare.report import rows
from workbench.compare.stage import StageComparison
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
    assert compare(computed(), silent).warnings[0] == (
        "the candidate does not say what input it was computed on; if it is the reference's, input_digest = "
        '"a1b2" under [meta] of a mapping file says so'
    )
    assert compare(silent, computed()).warnings[0].startswith("the reference does not say what input")
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
