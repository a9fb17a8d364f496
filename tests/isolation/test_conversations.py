"""Conversations in a separate process: same answers as in this process, stream closing, and error messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.support.fake_conversations import fake_conversation
from tests.support.processes import eventually
from tests.support.tiny_checkpoints import noise
from workbench.core.errors import BadInput, Cancelled
from workbench.core.settings import SessionSpec
from workbench.isolation import serial
from workbench.isolation.serial import ProcessSession
from workbench.registry.handle import OpenSession
from workbench.session.conversation import Answer, AnswerSoFar, AudioPiece

ASK = [{"role": "user", "content": "say three"}]


@pytest.fixture(scope="module")
def session() -> Iterator[ProcessSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serial, "CHILD", ("-P", "-m", "tests.support.conversing_worker"))
        with ProcessSession(SessionSpec("slow", "causal_lm", "pytorch", Path())) as session:
            yield session


def test_answer_from_the_process_equals_the_answer_in_this_process(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    soundfile.write("q.wav", noise(1.0)[0], 16000, subtype="FLOAT")
    messages = [{"role": "user", "content": [{"type": "audio", "audio": "q.wav"}, {"type": "text", "text": "what?"}]}]
    options = {"modalities": "text_audio", "max_text_tokens": 5, "max_audio_rows": 20, "seed": 4}
    holder = OpenSession(session.spec, session, lambda options: options, lambda spec: None)
    *events, answer = holder.converse_stream(messages, **options)
    local = fake_conversation(context=2000, ends=-50.0).converse(messages, **options)
    assert isinstance(answer, Answer) and answer.token_ids == local.token_ids and answer.text == local.text
    np.testing.assert_array_equal(answer.audio, local.audio)
    assert sum(isinstance(event, AudioPiece) for event in events) >= 20
    assert answer.load_seconds == session.load_seconds > 0 and holder.converse(ASK, modalities="text").text
    next_answer = holder.converse([*messages, answer.message(), *ASK], modalities="text", max_text_tokens=2)
    assert next_answer.prompt_rows > answer.prompt_rows + len(answer.token_ids) - 2


def test_closing_a_conversation_stream_frees_the_session_after_few_rows(session: Any) -> None:
    stream = session.converse_stream(ASK, modalities="audio", max_audio_rows=1900)
    answer_so_far = AnswerSoFar("slow", "pytorch")
    while len(answer_so_far.answer().token_ids) < 20:
        answer_so_far.add(next(stream))
    assert session.busy
    stream.close()
    eventually(lambda: not session.busy)
    partial_answer = answer_so_far.answer()
    assert (
        partial_answer.finish == "cancelled" and partial_answer.streams is not None and partial_answer.audio is not None
    )
    assert session.converse([*ASK, partial_answer.message(), *ASK], modalities="text", max_text_tokens=2).text


def test_conversation_can_be_cancelled_from_another_thread(session: Any) -> None:
    stream = session.converse_stream(ASK, modalities="audio", max_audio_rows=1900)
    next(stream)
    session.cancel()
    with pytest.raises(Cancelled):
        list(stream)


def test_invalid_messages_are_refused_before_they_are_sent_to_the_process(session: Any) -> None:
    with pytest.raises(BadInput, match="message 1 is empty"):
        session.converse([{"role": "user", "content": ""}])
    with pytest.raises(BadInput, match=r"^message 1, part 1: there is no file none\.wav"):
        session.converse([{"role": "user", "content": [{"type": "audio", "audio": "none.wav"}]}])
