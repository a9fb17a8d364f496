"""Parity of conversations on a tiny SpeechLM: each fault of its own kind is named, and clean runs raise no alarm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from tests.support.faults_in_conversations import FAULTS, GREEDY, stream_pads_are_left_out
from tests.support.tiny_checkpoints import noise
from tests.support.tiny_speechlm import tiny_speechlm
from workbench.compare import Comparison, Verdict, compare, judge, noise_or_bug
from workbench.core.settings import Settings
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.runtimes.pytorch.speechlm import open_session
from workbench.trace.trace import Trace

MESSAGES = [{"role": "user", "content": "say three"}]
BOTH = {"modalities": "text_audio", "max_text_tokens": 5, "min_audio_rows": 16, "max_audio_rows": 16}


@dataclass
class Sides:
    """Sessions of one model, and the traces of the reference by the options of the answer."""

    reference: ConversationSession
    candidate: ConversationSession
    exact: ConversationSession

    def __post_init__(self) -> None:
        self._traces: dict[str, Trace] = {}

    def traced(self, options: Mapping[str, Any], messages: Any = MESSAGES) -> Trace:
        key = repr((options, messages))
        if key not in self._traces:
            self._traces[key] = self.reference.trace(messages, **options)
        return self._traces[key]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    directory = tiny_speechlm(tmp_path_factory.mktemp("speechlm")).directory
    opened = [
        open_session(directory, "tiny", Settings(threads=1, dtype=dtype)) for dtype in ("float32", "float32", "float64")
    ]
    yield Sides(*opened)
    for session in opened:
        session.close()


def judge_traces(reference: Trace, candidate: Trace, exact: Trace | None = None) -> tuple[Comparison, Verdict]:
    comparison = compare(reference, candidate)
    return comparison, judge(comparison, noise_or_bug(reference, candidate, exact) if exact else None)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_in_a_conversation_is_named(sides: Sides, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fault = FAULTS[name]
    options = {**BOTH, **GREEDY, **fault.options}
    if "text_temperature" in fault.options:
        del options["temperature"]
    reference = sides.traced(options)
    fault.plant(sides.candidate, monkeypatch)
    faulty = sides.candidate.trace(MESSAGES, **options)
    monkeypatch.undo()
    _, verdict = judge_traces(reference, faulty)
    assert not verdict.within
    assert verdict.faulty_stage == fault.stage, verdict.sentence
    assert fault.words.casefold() in verdict.sentence.casefold(), verdict.sentence
    assert judge_traces(reference, sides.candidate.trace(MESSAGES, **options))[1].within, "the fault stayed"


def test_missing_pads_of_earlier_speech_are_found_in_the_prompt_embeddings(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**BOTH, **GREEDY, "modalities": "audio"}
    answer = {"role": "assistant", "content": [{"type": "audio", "audio": noise(0.5)}]}
    messages = [*MESSAGES, answer, *MESSAGES]
    reference = sides.traced(options, messages)
    stream_pads_are_left_out(sides.candidate, monkeypatch)
    _, verdict = judge_traces(reference, sides.candidate.trace(messages, **options))
    assert verdict.faulty_stage == "llm.embeddings", verdict.sentence


RUNS = [
    {"modalities": modalities, "max_text_tokens": 3 + seed, "max_audio_rows": 8 + 3 * seed, "seed": seed, **how}
    for seed in range(3)
    for modalities, how in (
        ("text", {"text_temperature": 0.7}),
        ("audio", {"temperature": 0.0}),
        ("audio", {"audio_temperature": 1.2, "audio_top_k": 5}),
        ("audio", {"temperature": 0.0, "cfg": 3.0}),
        ("text_audio", {"temperature": 0.9, "cfg": 2.0}),
        ("text_audio", {"temperature": 0.0}),
        ("auto", {"temperature": 0.8, "text_top_k": 0, "audio_top_k": 0}),
    )
]


def test_conversations_without_faults_are_within_noise(sides: Sides) -> None:
    """Float64 against float32, and float32 with two threads, over seeds, lengths, modalities, draws and guidance."""
    assert len(RUNS) >= 20
    for number, options in enumerate(RUNS):
        reference, exact = sides.traced(options), sides.exact.trace(MESSAGES, **options)
        comparison, verdict = judge_traces(reference, exact, exact)
        assert verdict.within and comparison.first_id is None, (options, verdict.sentence)
        if number % 7 == 4:
            torch.set_num_threads(2)
            other = sides.candidate.trace(MESSAGES, **options)
            torch.set_num_threads(1)
            _, verdict = judge_traces(reference, other, exact)
            assert verdict.within, (options, verdict.sentence)


def test_verdict_names_row_and_stream_of_the_first_different_id(sides: Sides) -> None:
    options = {**BOTH, **GREEDY}
    trace = sides.traced(options)
    rows = np.array(trace["codec.rows"])
    rows[7, 3] += 1 if rows[7, 3] + 1 < sides.reference.network.layout.interval(3)[1] else -1
    comparison, verdict = judge_traces(trace, Trace({**trace, "codec.rows": rows}, trace.meta))
    assert comparison.first_id and (comparison.first_id.row, comparison.first_id.stream) == (7, 3)
    assert not comparison.first_id.near_tie and verdict.faulty_stage == "codec.rows"
    assert "The answers differ from row 7 of the audio, stream 3 on" in verdict.sentence
    assert "The candidate's id is not among its own likeliest." in verdict.sentence
