"""Conversation answers: as JSON, as the next message, and collected from stream events."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import soundfile

from workbench.core.errors import Cancelled
from workbench.session.conversation import Answer, AnswerSoFar, AnswerStart, AudioPiece, ConversationEvent, last_answer
from workbench.session.messages import AudioPart, check_messages
from workbench.session.values import Piece

ROWS = np.array([[300, 400], [301, 401], [302, 402]])
SAMPLES = np.linspace(-1, 1, 640, dtype=np.float32)
USER = {"role": "user", "content": "y"}
EVENTS: tuple[ConversationEvent, ...] = (
    Piece("", (7,)),
    Piece("th", (65,)),
    Piece("ree", (66,)),
    Piece("", (3, 6, 8)),
    AudioPiece(SAMPLES[:0], 16000, 1, ROWS[:1]),
    AudioPiece(SAMPLES[:320], 16000, 2, ROWS[1:2]),
    AudioPiece(SAMPLES[320:], 16000, 3, ROWS[2:]),
    Piece("", (2,)),
)


def collect(events: tuple[ConversationEvent, ...]) -> AnswerSoFar:
    ticks = iter(range(100))
    answer = AnswerSoFar("m", "pytorch", {"cfg": 3.0}, clock=lambda: float(next(ticks)))
    for event in events:
        answer.add(event)
    return answer


def test_collected_events_form_a_valid_answer_at_any_time() -> None:
    answer = collect(EVENTS).answer("stop")
    assert (answer.text, answer.finish, answer.sample_rate, answer.settings) == ("three", "stop", 16000, {"cfg": 3.0})
    assert answer.token_ids == (7, 65, 66, 3, 6, 8, 300, 301, 302, 2)
    assert answer.audio is not None and answer.streams is not None
    np.testing.assert_array_equal(answer.audio, SAMPLES)
    np.testing.assert_array_equal(answer.streams, ROWS)
    assert (answer.first_text_seconds, answer.first_audio_seconds, answer.compute_seconds) == (2.0, 6.0, 9.0)
    assert answer.rows_per_second == 1.0 and answer.audio_seconds == 0.04 and answer.real_time_factor == 225.0
    for count in range(len(EVENTS)):
        partial = collect(EVENTS[:count]).answer()
        assert partial.finish == "cancelled" and answer.text.startswith(partial.text)
        assert answer.token_ids[: len(partial.token_ids)] == partial.token_ids
        assert (partial.audio is None) == (count < 6) and (partial.streams is None) == (count < 5)
        json.loads(partial.to_json())
    final = Answer(**{**vars(answer), "compute_seconds": 0.5})
    assert collect((*EVENTS, final)).answer() is final


def test_answer_times_exclude_the_loading_time() -> None:
    start_event = AnswerStart({"cfg": 1.0}, 12, {"streams": 2}, 30.0, "q8_0", ("a note",))
    answer = collect((start_event, *EVENTS[:6])).answer()
    assert answer.finish == "cancelled" and (answer.first_text_seconds, answer.first_audio_seconds) == (2.0, 6.0)
    assert (answer.settings, answer.prompt_rows, answer.layout) == ({"cfg": 1.0}, 12, {"streams": 2})
    assert (answer.load_seconds, answer.quantization, answer.notes) == (30.0, "q8_0", ("a note",))


def test_answer_is_exported_as_plain_json() -> None:
    layout = MappingProxyType({"streams": 2, "codec_first": 300})
    exported = json.loads(replace(collect(EVENTS).answer("stop"), layout=layout).to_json())
    assert exported["layout"] == dict(layout)
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(exported["audio"])), dtype="float32")
    assert rate == 16000
    np.testing.assert_allclose(samples, SAMPLES, atol=1 / 32768)
    assert exported["streams"] == ROWS.tolist() and exported["token_ids"][:3] == [7, 65, 66]
    assert json.loads(collect(EVENTS[:3]).answer().to_json())["audio"] is None


@pytest.mark.parametrize(("first", "order"), [(7, ["text", "audio"]), (8, ["audio", "text"])])
def test_message_has_text_and_speech_in_the_order_of_the_answer(first: int, order: list[str]) -> None:
    answer = collect((AnswerStart({}, layout={"text": 7, "audio": 8}), Piece("", (5, first)), *EVENTS[1:])).answer()
    assert [part["type"] for part in answer.message()["content"]] == order


def test_answer_is_converted_to_the_next_message() -> None:
    def parts(answer: Answer) -> tuple[object, ...]:
        return check_messages([USER, answer.message(), USER])[1].parts

    complete = collect(EVENTS).answer("stop")
    text, audio = parts(complete)
    assert text.text == "three" and isinstance(audio, AudioPart) and audio.streams is not None  # type: ignore[attr-defined]
    np.testing.assert_array_equal(audio.streams, ROWS)
    assert collect(EVENTS[:3]).answer().message() == {"role": "assistant", "content": "three"}
    assert collect(()).answer().message() == {"role": "assistant", "content": ""}
    [rows_part] = parts(collect(EVENTS[3:5]).answer())  # too few rows for samples
    assert isinstance(rows_part, AudioPart) and rows_part.streams is not None
    [audio_part] = parts(collect((AudioPiece(SAMPLES, 16000, 0),)).answer())
    assert isinstance(audio_part, AudioPart) and isinstance(audio_part.source, tuple) and audio_part.source[1] == 16000


def test_the_last_answer_is_the_result() -> None:
    answer = collect(EVENTS).answer("stop")
    assert last_answer(iter((*EVENTS, answer))) is answer
    with pytest.raises(Cancelled, match="stopped before it ended"):
        last_answer(iter(EVENTS))
