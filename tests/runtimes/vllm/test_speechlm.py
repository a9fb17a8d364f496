"""A tiny SpeechLM in one engine compared with PyTorch: all streams, in parallel, preempted and cancelled."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")
pytest.importorskip("torch")

from tests.support.in_process_vllm import forking_engines
from tests.support.tiny_checkpoints import noise
from tests.support.tiny_speechlm import tiny_espnet_release, tiny_speechlm
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of
from workbench.conversion.vllm_checkpoint.directory import write_directory
from workbench.core.errors import BadInput, SessionDied, WorkbenchError
from workbench.core.settings import Settings
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.runtimes.pytorch.speechlm import open_session as open_on_pytorch
from workbench.runtimes.vllm.engine.forking import inspecting_here
from workbench.runtimes.vllm.speechlm import open_session
from workbench.runtimes.vllm.streams.network import _pair
from workbench.session.conversation import Answer, AudioPiece

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HEADS = {"head_dim": 32}  # the least that vLLM's attention has on a CPU
SMALL = Settings(threads=1, kv_gigabytes=0.05)
LIMITS = {"max_text_tokens": 8, "max_audio_rows": 14, "min_audio_rows": 6}
RECORDING = {"role": "user", "content": [{"type": "audio", "audio": noise(0.7)}]}
AGAIN = {"type": "text", "text": "again"}
GONE_SECONDS = 60.0  # until the engine has removed ended requests


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_speechlm(tmp_path_factory.mktemp("models") / "tiny", language=HEADS).directory


@pytest.fixture(scope="module")
def session(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConversationSession]:
    model_directory = tmp_path_factory.mktemp("served") / "tiny"
    write_directory(plan_of(directory, "speechlm"), model_directory)
    with inspecting_here():
        engine_session = open_session(model_directory, "tiny", SMALL)
    yield engine_session
    engine_session.close()


@pytest.fixture(scope="module")
def reference(directory: Path) -> Iterator[ConversationSession]:
    pytorch_session = open_on_pytorch(directory, "tiny", Settings(threads=1, dtype="float32"))
    yield pytorch_session
    pytorch_session.close()


def assert_same(actual: Answer, expected: Answer) -> None:
    """Compare all ids, all streams, the samples, and the reason of the end."""
    assert actual.token_ids == expected.token_ids and actual.finish == expected.finish and actual.text == expected.text
    assert (actual.streams is None) == (expected.streams is None)
    if actual.streams is not None and expected.streams is not None:
        np.testing.assert_array_equal(actual.streams, expected.streams)
    assert (actual.audio is None) == (expected.audio is None)
    if actual.audio is not None and expected.audio is not None:
        np.testing.assert_array_equal(actual.audio, expected.audio)


def make_conversations(count: int) -> list[tuple[Any, dict[str, Any]]]:
    """Conversations with texts or recordings, in all modalities, greedy and sampled, with and without guidance."""
    modalities = ("text", "audio", "text_audio", "auto")
    cases: list[tuple[Any, dict[str, Any]]] = []
    for n in range(count):
        messages: Any = [{"role": "user", "content": " ".join(["say", "one", "two", "three"][: 2 + n % 3])}]
        if n % 3 == 2:
            messages = [{"role": "system", "content": f"number {n}"}, RECORDING]
        options = {**LIMITS, "modalities": modalities[n % 4], "seed": n, "temperature": (0.0, 0.9)[n // 4 % 2]}
        options["cfg"] = (1.0, 2.0, 3.0, 5.0, 1.0)[n % 5]
        cases.append((messages, options))
    return cases


def test_answers_equal_pytorch(session: ConversationSession, reference: ConversationSession) -> None:
    """Greedy and sampled, as all runtimes draw the same random numbers."""
    rows = 0
    for messages, options in make_conversations(16):
        actual, expected = session.converse(messages, **options), reference.converse(messages, **options)
        assert_same(actual, expected)
        rows += 0 if actual.streams is None else len(actual.streams)
    assert rows > 40


def test_dialogue_with_recordings_and_earlier_spoken_answers_equals_pytorch(
    session: ConversationSession, reference: ConversationSession
) -> None:
    """The assistant's earlier rows return unchanged, with recordings before and after them."""
    options = {**LIMITS, "modalities": "text_audio", "temperature": 0.0}
    messages: list[Any] = [RECORDING]
    for cfg in (1.0, 3.0, 5.0):
        options["cfg"] = cfg
        actual, expected = session.converse(messages, **options), reference.converse(messages, **options)
        assert_same(actual, expected)
        messages = [*messages, expected.message(), {"role": "user", "content": [*RECORDING["content"], AGAIN]}]
    assert_same(*(model.converse(messages, **options | {"modalities": "text"}) for model in (session, reference)))


def test_parallel_answers_with_preemption_and_cancellation_equal_single_answers(session: ConversationSession) -> None:
    """Sixteen run at once, some are cancelled, and all are preempted repeatedly: each equals its single answer."""
    engine = session.network.engine  # type: ignore[attr-defined]
    cases = make_conversations(16)
    single_answers = [session.converse(messages, **options) for messages, options in cases]
    cancelled = {3, 6, 9}

    def answer(number: int) -> Answer | list[AudioPiece]:
        messages, options = cases[number]
        if number not in cancelled:
            return session.converse(messages, **options)
        events: list[AudioPiece] = []
        with closing(session.converse_stream(messages, **options)) as stream:
            for event in stream:
                if isinstance(event, AudioPiece) and event.streams is not None:
                    events.append(event)
                if len(events) == 2:
                    break
        return events

    with ThreadPoolExecutor(16) as pool:
        calls = [pool.submit(answer, number) for number in range(16)]
        rounds = 0
        while not all(call.done() for call in calls):
            engine._submit(engine._llm.reset_prefix_cache(reset_running_requests=True)).result()
            rounds += 1
            time.sleep(0.05)
        answers = [call.result() for call in calls]
    assert rounds > 3
    for actual, expected in zip(answers, single_answers):
        if isinstance(actual, Answer):
            assert_same(actual, expected)
        elif actual:
            assert expected.streams is not None
            rows = np.concatenate([piece.streams for piece in actual if piece.streams is not None])
            np.testing.assert_array_equal(rows, expected.streams[: len(rows)])
    assert_nothing_remains(session)


def assert_nothing_remains(session: ConversationSession) -> None:
    engine = session.network.engine  # type: ignore[attr-defined]
    deadline = time.monotonic() + GONE_SECONDS
    while (remaining := (engine.unfinished, engine.call("workbench_answers"))) != (0, 0):
        assert time.monotonic() < deadline, remaining


@pytest.mark.parametrize("cfg", [1.0, 3.0])
def test_a_cancel_ends_the_work_within_a_step(cfg: float, session: ConversationSession) -> None:
    stream = session.converse_stream("hello", modalities="audio", min_audio_rows=500, max_audio_rows=500, cfg=cfg)
    for event in stream:
        if isinstance(event, AudioPiece):
            break
    stream.close()
    assert_nothing_remains(session)


def test_prefix_cache_distinguishes_prompts_that_differ_only_in_other_streams(session: ConversationSession) -> None:
    """Two prompts with the same stream 0 and other streams, long enough to be cached."""
    rows = np.repeat(session.network.layout.pads[None] + 1, 70, axis=0)
    other_rows = rows.copy()
    other_rows[:, 1:] += np.arange(4)
    conversations = [
        [
            {"role": "assistant", "content": [{"type": "audio", "streams": streams}]},
            {"role": "user", "content": "go on"},
        ]
        for streams in (rows, other_rows)
    ]
    options = {"modalities": "text", "max_text_tokens": 8, "temperature": 0.0}
    first, second, repeated = (session.converse(conversations[n], **options) for n in (0, 1, 0))
    assert first.token_ids == repeated.token_ids != second.token_ids


def test_answer_stopped_by_the_context_limit_equals_pytorch(
    session: ConversationSession, reference: ConversationSession
) -> None:
    for modalities, cfg in (("audio", 1.0), ("text_audio", 3.0)):
        rows = {"min_audio_rows": 900, "max_audio_rows": 900}
        options = {"modalities": modalities, "temperature": 0.0, "cfg": cfg, **rows}
        actual, expected = session.converse("x" * 480, **options), reference.converse("x" * 480, **options)
        assert actual.finish == expected.finish == "length"
        assert_same(actual, expected)


def test_token_probabilities_equal_pytorch(session: ConversationSession, reference: ConversationSession) -> None:
    options = {**LIMITS, "modalities": "text_audio", "temperature": 0.9, "probabilities": True}
    actual, expected = (model.converse("hello", **options).probabilities for model in (session, reference))
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
    assert actual is not None and np.isfinite(actual).any() and np.isnan(actual).any()


def test_conversation_stages_equal_pytorch(session: ConversationSession, reference: ConversationSession) -> None:
    options = {**LIMITS, "modalities": "text_audio", "temperature": 0.9}
    actual, expected = session.trace([RECORDING], **options), reference.trace([RECORDING], **options)
    assert set(expected) == set(actual) and "codec.logits" in actual
    for stage in actual:
        if actual[stage].dtype.kind == "f":
            np.testing.assert_allclose(actual[stage], expected[stage], atol=2e-3, rtol=2e-3, err_msg=stage)
        else:
            np.testing.assert_array_equal(actual[stage], expected[stage], err_msg=stage)


@pytest.mark.parametrize(
    ("messages", "options", "error"),
    [
        ("x" * 5000, {}, "the conversation is "),
        (
            [{"role": "user", "content": [{"type": "audio", "audio": (np.zeros(8000, np.float32), 16000)}]}],
            {},
            "message 1, part 1: the recording of 0.5 s is silent",
        ),
    ],
)
def test_invalid_input_raises_one_line_error_and_leaves_no_request(
    messages: Any, options: dict[str, Any], error: str, session: ConversationSession
) -> None:
    with pytest.raises(BadInput) as raised:
        session.converse(messages, **options)
    assert str(raised.value).startswith(error) and "\n" not in str(raised.value)
    assert_nothing_remains(session)


def test_guidance_null_branch_that_ends_early_aborts_the_answer(
    session: ConversationSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shorten_null_branch(*arguments: Any) -> Any:
        model, (null, params) = _pair(*arguments)
        params.max_tokens = 5
        return [model, (null, params)]

    monkeypatch.setattr("workbench.runtimes.vllm.streams.network._pair", shorten_null_branch)
    with pytest.raises(WorkbenchError, match="the engine broke an answer off"):
        session.converse("hello", modalities="audio", min_audio_rows=50, cfg=3.0)
    assert_nothing_remains(session)


def test_a_killed_engine_fails_each_answer_once_and_starts_again(session: ConversationSession) -> None:
    engine = session.network.engine  # type: ignore[attr-defined]
    expected = session.converse("hello", modalities="audio", temperature=0.0, **LIMITS)

    def answer(number: int) -> Any:
        options = {"modalities": "audio", "min_audio_rows": 500, "max_audio_rows": 500, "seed": number}
        try:
            return session.converse("hello", **options)
        except SessionDied as error:
            return error

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(answer, number) for number in range(3)]
        while engine.unfinished < 3:
            time.sleep(0.01)
        for pid in engine.health().pids:
            os.kill(pid, signal.SIGKILL)
        errors = [call.result() for call in calls]
    for error in errors:
        assert isinstance(error, SessionDied) and "was ended by SIGKILL at work" in str(error)
    with forking_engines():
        assert_same(session.converse("hello", modalities="audio", temperature=0.0, **LIMITS), expected)


def test_espnet_release_is_converted_to_an_equivalent_directory(tmp_path: Path) -> None:
    """The description read from the directory equals that of the release."""
    from workbench.families.speechlm.model import is_speechlm, read_speechlm

    release = tiny_espnet_release(tmp_path / "release", language=HEADS).directory
    write_directory(plan_of(release, "speechlm"), tmp_path / "served")
    assert is_speechlm(tmp_path / "served")
    actual, expected = read_speechlm(tmp_path / "served"), read_speechlm(release)
    assert (actual.layout, actual.tower, actual.defaults) == (expected.layout, expected.tower, expected.defaults)
    assert dict(actual.settings) == dict(expected.settings)
    assert actual.tokenizer.encode("one two 3") == expected.tokenizer.encode("one two 3")
    sessions = [
        open_on_pytorch(directory, "tiny", Settings(threads=1, dtype="float32"))
        for directory in (tmp_path / "served", release)
    ]
    assert_same(
        *(session.converse("hello", modalities="text_audio", temperature=0.0, **LIMITS) for session in sessions)
    )
