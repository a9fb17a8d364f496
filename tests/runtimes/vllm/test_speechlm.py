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
from workbench.pipelines.conversation_session import ConversationSession
from workbench.runtimes.pytorch.speechlm import open_session as open_on_pytorch
from workbench.runtimes.vllm.forking import inspecting_here
from workbench.runtimes.vllm.speechlm import open_session
from workbench.runtimes.vllm.streams.network import _pair
from workbench.session.conversation import Answer, AudioPiece

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HEADS = {"head_dim": 32}  # the least that vLLM's attention has on a CPU
SMALL = Settings(threads=1, kv_gigabytes=0.05)
LIMITS = {"max_text_tokens": 8, "max_audio_rows": 14, "min_audio_rows": 6}
HEARD = {"role": "user", "content": [{"type": "audio", "audio": noise(0.7)}]}
AGAIN = {"type": "text", "text": "again"}
GONE_SECONDS = 60.0  # for the engine to take note of what has ended


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_speechlm(tmp_path_factory.mktemp("models") / "tiny", language=HEADS).directory


@pytest.fixture(scope="module")
def session(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConversationSession]:
    served = tmp_path_factory.mktemp("served") / "tiny"
    write_directory(plan_of(directory, "speechlm"), served)
    with inspecting_here():
        opened = open_session(served, "tiny", SMALL)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def reference(directory: Path) -> Iterator[ConversationSession]:
    opened = open_on_pytorch(directory, "tiny", Settings(threads=1, dtype="float32"))
    yield opened
    opened.close()


def same(one: Answer, other: Answer) -> None:
    """All ids, all streams, the samples, and why it ended."""
    assert one.token_ids == other.token_ids and one.finish == other.finish and one.text == other.text
    assert (one.streams is None) == (other.streams is None)
    if one.streams is not None and other.streams is not None:
        np.testing.assert_array_equal(one.streams, other.streams)
    assert (one.audio is None) == (other.audio is None)
    if one.audio is not None and other.audio is not None:
        np.testing.assert_array_equal(one.audio, other.audio)


def asked(count: int) -> list[tuple[Any, dict[str, Any]]]:
    """Conversations of all kinds: texts, recordings, dialogues; all modalities; greedy and drawn; guided or not."""
    modalities = ("text", "audio", "text_audio", "auto")
    found: list[tuple[Any, dict[str, Any]]] = []
    for n in range(count):
        messages: Any = [{"role": "user", "content": " ".join(["say", "one", "two", "three"][: 2 + n % 3])}]
        if n % 3 == 2:
            messages = [{"role": "system", "content": f"number {n}"}, HEARD]
        options = {**LIMITS, "modalities": modalities[n % 4], "seed": n, "temperature": (0.0, 0.9)[n // 4 % 2]}
        options["cfg"] = (1.0, 2.0, 3.0, 5.0, 1.0)[n % 5]
        found.append((messages, options))
    return found


def test_answers_equal_pytorch(session: ConversationSession, reference: ConversationSession) -> None:
    """Greedy and drawn, as all runtimes have the same draws."""
    spoken = 0
    for messages, options in asked(16):
        own, theirs = session.converse(messages, **options), reference.converse(messages, **options)
        same(own, theirs)
        spoken += 0 if own.streams is None else len(own.streams)
    assert spoken > 40


def test_dialogue_with_recordings_and_earlier_spoken_answers_equals_pytorch(
    session: ConversationSession, reference: ConversationSession
) -> None:
    """The assistant's earlier rows go back as they were; recordings before and after them."""
    options = {**LIMITS, "modalities": "text_audio", "temperature": 0.0}
    messages: list[Any] = [HEARD]
    for cfg in (1.0, 3.0, 5.0):
        options["cfg"] = cfg
        own, theirs = session.converse(messages, **options), reference.converse(messages, **options)
        same(own, theirs)
        messages = [*messages, theirs.message(), {"role": "user", "content": [*HEARD["content"], AGAIN]}]
    same(*(each.converse(messages, **options | {"modalities": "text"}) for each in (session, reference)))


def test_parallel_answers_with_preemption_and_cancellation_equal_single_answers(session: ConversationSession) -> None:
    """Sixteen at once, some given up, all taken out of the batch again and again: each gives what it gives alone."""
    engine = session.network.engine  # type: ignore[attr-defined]
    cases = asked(16)
    alone = [session.converse(messages, **options) for messages, options in cases]
    stopped = {3, 6, 9}

    def answer(number: int) -> Answer | list[AudioPiece]:
        messages, options = cases[number]
        if number not in stopped:
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
        working = [pool.submit(answer, number) for number in range(16)]
        rounds = 0
        while not all(each.done() for each in working):
            engine._submit(engine._llm.reset_prefix_cache(reset_running_requests=True)).result()
            rounds += 1
            time.sleep(0.05)
        found = [each.result() for each in working]
    assert rounds > 3
    for own, expected in zip(found, alone):
        if isinstance(own, Answer):
            same(own, expected)
        elif own:
            assert expected.streams is not None
            rows = np.concatenate([each.streams for each in own if each.streams is not None])
            np.testing.assert_array_equal(rows, expected.streams[: len(rows)])
    nothing_remains(session)


def nothing_remains(session: ConversationSession) -> None:
    engine = session.network.engine  # type: ignore[attr-defined]
    deadline = time.monotonic() + GONE_SECONDS
    while (left := (engine.unfinished, engine.call("workbench_answers"))) != (0, 0):
        assert time.monotonic() < deadline, left


@pytest.mark.parametrize("cfg", [1.0, 3.0])
def test_a_cancel_ends_the_work_within_a_step(cfg: float, session: ConversationSession) -> None:
    stream = session.converse_stream("hello", modalities="audio", min_audio_rows=500, max_audio_rows=500, cfg=cfg)
    for event in stream:
        if isinstance(event, AudioPiece):
            break
    stream.close()
    nothing_remains(session)


def test_prefix_cache_distinguishes_prompts_that_differ_only_in_other_streams(session: ConversationSession) -> None:
    """Two prompts with the same stream 0 and other streams, long enough to be cached."""
    rows = np.repeat(session.network.layout.pads[None] + 1, 70, axis=0)
    other = rows.copy()
    other[:, 1:] += np.arange(4)
    said = [
        [{"role": "assistant", "content": [{"type": "audio", "streams": each}]}, {"role": "user", "content": "go on"}]
        for each in (rows, other)
    ]
    options = {"modalities": "text", "max_text_tokens": 8, "temperature": 0.0}
    first, second, again = (session.converse(said[n], **options) for n in (0, 1, 0))
    assert first.token_ids == again.token_ids != second.token_ids


def test_answer_stopped_by_the_context_limit_equals_pytorch(
    session: ConversationSession, reference: ConversationSession
) -> None:
    for modalities, cfg in (("audio", 1.0), ("text_audio", 3.0)):
        rows = {"min_audio_rows": 900, "max_audio_rows": 900}
        options = {"modalities": modalities, "temperature": 0.0, "cfg": cfg, **rows}
        own, theirs = session.converse("x" * 480, **options), reference.converse("x" * 480, **options)
        assert own.finish == theirs.finish == "length"
        same(own, theirs)


def test_token_probabilities_equal_pytorch(session: ConversationSession, reference: ConversationSession) -> None:
    options = {**LIMITS, "modalities": "text_audio", "temperature": 0.9, "probabilities": True}
    own, theirs = (each.converse("hello", **options).probabilities for each in (session, reference))
    np.testing.assert_allclose(own, theirs, rtol=1e-3, atol=1e-5)
    assert own is not None and np.isfinite(own).any() and np.isnan(own).any()


def test_conversation_stages_equal_pytorch(session: ConversationSession, reference: ConversationSession) -> None:
    options = {**LIMITS, "modalities": "text_audio", "temperature": 0.9}
    own, theirs = session.trace([HEARD], **options), reference.trace([HEARD], **options)
    assert set(theirs) == set(own) and "codec.logits" in own
    for stage in own:
        if own[stage].dtype.kind == "f":
            np.testing.assert_allclose(own[stage], theirs[stage], atol=2e-3, rtol=2e-3, err_msg=stage)
        else:
            np.testing.assert_array_equal(own[stage], theirs[stage], err_msg=stage)


@pytest.mark.parametrize(
    ("messages", "options", "said"),
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
    messages: Any, options: dict[str, Any], said: str, session: ConversationSession
) -> None:
    with pytest.raises(BadInput) as raised:
        session.converse(messages, **options)
    assert str(raised.value).startswith(said) and "\n" not in str(raised.value)
    nothing_remains(session)


def test_guidance_null_branch_that_ends_early_aborts_the_answer(
    session: ConversationSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shortened(*given: Any) -> Any:
        model, (null, params) = _pair(*given)
        params.max_tokens = 5
        return [model, (null, params)]

    monkeypatch.setattr("workbench.runtimes.vllm.streams.network._pair", shortened)
    with pytest.raises(WorkbenchError, match="the engine broke an answer off"):
        session.converse("hello", modalities="audio", min_audio_rows=50, cfg=3.0)
    nothing_remains(session)


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
        working = [pool.submit(answer, number) for number in range(3)]
        while engine.unfinished < 3:
            time.sleep(0.01)
        for pid in engine.health().pids:
            os.kill(pid, signal.SIGKILL)
        found = [each.result() for each in working]
    for error in found:
        assert isinstance(error, SessionDied) and "was ended by SIGKILL at work" in str(error)
    with forking_engines():
        same(session.converse("hello", modalities="audio", temperature=0.0, **LIMITS), expected)


def test_espnet_release_is_converted_to_an_equivalent_directory(tmp_path: Path) -> None:
    """Read again, the directory describes what the release does."""
    from workbench.families.speechlm import is_speechlm, read_speechlm

    release = tiny_espnet_release(tmp_path / "release", language=HEADS).directory
    write_directory(plan_of(release, "speechlm"), tmp_path / "served")
    assert is_speechlm(tmp_path / "served")
    own, theirs = read_speechlm(tmp_path / "served"), read_speechlm(release)
    assert (own.layout, own.tower, own.defaults) == (theirs.layout, theirs.tower, theirs.defaults)
    assert dict(own.settings) == dict(theirs.settings)
    assert own.tokenizer.ids("one two 3") == theirs.tokenizer.ids("one two 3")
    both = [
        open_on_pytorch(each, "tiny", Settings(threads=1, dtype="float32")) for each in (tmp_path / "served", release)
    ]
    same(*(each.converse("hello", modalities="text_audio", temperature=0.0, **LIMITS) for each in both))
