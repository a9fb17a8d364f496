"""Decoding steps on PyTorch, against one pass over prompt and ids together, and with planted faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.faults_in_decoding import FAULTS
from tests.support.tiny_language import tiny_language
from workbench.compare import compare, judge, noise_or_bug
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.pipelines.text.text_session import TextSession
from workbench.runtimes.pytorch.causal_lm import open_session
from workbench.trace.recorder import Recorder
from workbench.trace.steps import ForcedDecoding
from workbench.trace.trace import StageFilter, Trace

PROMPT = "one two three four five"
OPTIONS = {"max_new_tokens": 6}
INSIDE = "*,llm.layers.*.*"


def trace_steps(session: TextSession, stages: str = INSIDE, steps: str = "all", **options: object) -> Trace:
    return session.trace(PROMPT, stages, steps=steps, **OPTIONS, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_language(tmp_path_factory.mktemp("steps") / "qwen3")


@pytest.fixture(scope="module")
def session(directory: Path) -> TextSession:
    return open_session(directory, "tiny", Settings(dtype="float32", threads=1))


@pytest.fixture(scope="module")
def reference(session: TextSession) -> Trace:
    return trace_steps(session)


@pytest.fixture(scope="module")
def exact(directory: Path, reference: Trace) -> Trace:
    return trace_steps(open_session(directory, "tiny", Settings(dtype="float64", threads=1)), follow=reference)


def test_step_stages_equal_rows_of_one_pass_over_prompt_and_tokens(session: TextSession, reference: Trace) -> None:
    ids = [*reference["prompt.tokens"].tolist(), *reference["tokens"].tolist()[:-1]]
    begin = len(reference["prompt.tokens"])
    recorder = Recorder(StageFilter(INSIDE))
    language = session.writer.language  # type: ignore[attr-defined]
    language.trace(language.prompt([ids]), recorder)
    count = 0
    for step in reference.meta["steps"]["traced"]:
        row = begin + step - 1
        for stage, values in recorder.stages.items():
            actual = reference[f"steps.{step}.{stage}"]
            expected = values[:, row : row + 1, : row + 1] if stage.endswith("weights") else values[row : row + 1]
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5, err_msg=f"{step} {stage}")
            count += 1
        for layer in range(3):
            for name, source in (("key", "key_rope"), ("value", "value")):
                cached = reference[f"steps.{step}.llm.layers.{layer}.cache.{name}"]
                expected = recorder.stages[f"llm.layers.{layer}.attention.{source}"][: row + 1]
                np.testing.assert_allclose(cached, expected, rtol=1e-4, atol=2e-5)
        assert reference[f"steps.{step}.logits"][0].argmax() == reference["tokens"][step]
    assert count > 200


def test_the_prompts_pass_and_the_text_are_the_same_with_steps_and_without(
    session: TextSession, reference: Trace
) -> None:
    plain = session.trace(PROMPT, INSIDE, **OPTIONS)
    assert not any(stage.startswith("steps.") for stage in plain)
    for stage, array in plain.items():
        assert np.array_equal(array, reference[stage]), stage


def test_steps_follow_the_ids_that_are_given(session: TextSession) -> None:
    trace = trace_steps(session, "logits,llm.embeddings", "2", follow=[5, 6, 7, 8])
    assert trace.meta["steps"] == {"traced": [2], "followed": [5, 6, 7, 8]}
    language = session.writer.language  # type: ignore[attr-defined]
    assert np.array_equal(trace["steps.2.llm.embeddings"], language.table_rows(6, 7))
    assert list(trace) == ["llm.embeddings", "logits", "steps.2.llm.embeddings", "steps.2.logits"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_by_step_and_stage(
    session: TextSession, reference: Trace, exact: Trace, fault: str
) -> None:
    plant, outer, inside = FAULTS[fault]
    with plant(session.writer.language.network):  # type: ignore[attr-defined]
        faulty = trace_steps(session, follow=reference)
    for stages, expected in (("llm.layers.?,steps.*.llm.layers.?,logits", outer), (INSIDE, inside)):
        verdict = judge(compare(reference, faulty, stages=stages), noise_or_bug(reference, faulty, exact, stages))
        assert verdict.faulty_stage == expected, verdict.sentence
        assert "The prompt's pass" in verdict.sentence and "within" in verdict.sentence


def test_bfloat16_trace_without_faults_is_judged_within_tolerance(
    directory: Path, reference: Trace, exact: Trace
) -> None:
    half, stepwise = (
        open_session(directory, "tiny", Settings(dtype="bfloat16", threads=1, stepwise=value))
        for value in (False, True)
    )
    candidate, peer = (trace_steps(model, "*", follow=reference) for model in (half, stepwise))
    comparison = compare(reference, candidate, reason="as its types ask", stages="*")
    verdict = judge(comparison, noise_or_bug(reference, candidate, exact, "*", peer))
    assert verdict.within, verdict.sentence
    assert judge(compare(reference, reference), noise_or_bug(reference, reference, exact)).within


def test_isolated_steps_show_a_cache_fault_only_in_the_faulty_layer(session: TextSession, reference: Trace) -> None:
    """Isolated steps show a fault in one layer's cache in that layer only."""
    plant, _, inside = FAULTS["stale cache row"]
    with plant(session.writer.language.network):  # type: ignore[attr-defined]
        faulty = trace_steps(session, given=reference, steps="1,2")
    candidate = trace_steps(session, given=reference, steps="1,2")
    assert judge(compare(reference, candidate)).within
    verdict = judge(compare(reference, faulty))
    assert verdict.faulty_stage == inside
    assert not any(".layers.2" in stage or ".layers.0" in stage for stage in verdict.faulty_stages)


def test_untraceable_step_requests_raise_one_line_error(session: TextSession) -> None:
    with pytest.raises(BadInput, match=r"^step 6 was asked for, and tiny wrote 6 tokens, which takes steps 1 to 5$"):
        trace_steps(session, steps="6")
    with pytest.raises(BadInput, match=r"^ids to follow are given without decoding steps"):
        trace_steps(session, steps="", follow=[1, 2])
    with pytest.raises(BadInput, match=r"only decoding steps have a cache; set steps, too$"):
        session.trace(PROMPT, "llm.layers.0.cache.key", **OPTIONS)


def test_step_trace_beyond_the_memory_limit_stops_early_with_an_error(session: TextSession) -> None:
    language = session.writer.language  # type: ignore[attr-defined]
    forced = ForcedDecoding([5] * 50, range(1, 40), StageFilter("logits"), max_bytes=4000)
    with pytest.raises(BadInput, match="39 decoding steps with these stages would take"):
        language.follow(language.prompt([[1, 2, 3]]), forced)
    assert list(forced.recorder.stages) == ["steps.1.logits"]
