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
from workbench.session.conversation import Answer, AnswerSoFar, AudioPiece, Begun, ConversationEvent, last_answer
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


def collected(events: tuple[ConversationEvent, ...]) -> AnswerSoFar:
    ticks = iter(range(100))
    found = AnswerSoFar("m", "pytorch", {"cfg": 3.0}, clock=lambda: float(next(ticks)))
    for event in events:
        found.add(event)
    return found


def test_collected_events_form_a_valid_answer_at_any_time() -> None:
    made = collected(EVENTS).answer("stop")
    assert (made.text, made.finish, made.sample_rate, made.settings) == ("three", "stop", 16000, {"cfg": 3.0})
    assert made.token_ids == (7, 65, 66, 3, 6, 8, 300, 301, 302, 2)
    assert made.audio is not None and made.streams is not None
    np.testing.assert_array_equal(made.audio, SAMPLES)
    np.testing.assert_array_equal(made.streams, ROWS)
    assert (made.first_text_seconds, made.first_audio_seconds, made.compute_seconds) == (2.0, 6.0, 9.0)
    assert made.rows_per_second == 1.0 and made.audio_seconds == 0.04 and made.real_time_factor == 225.0
    for count in range(len(EVENTS)):
        part = collected(EVENTS[:count]).answer()
        assert part.finish == "cancelled" and made.text.startswith(part.text)
        assert made.token_ids[: len(part.token_ids)] == part.token_ids
        assert (part.audio is None) == (count < 6) and (part.streams is None) == (count < 5)
        json.loads(part.to_json())
    whole = Answer(**{**vars(made), "compute_seconds": 0.5})
    assert collected((*EVENTS, whole)).answer() is whole


def test_answer_times_exclude_the_loading_time() -> None:
    begun = Begun({"cfg": 1.0}, 12, {"streams": 2}, 30.0, "q8_0", ("a note",))
    made = collected((begun, *EVENTS[:6])).answer()
    assert made.finish == "cancelled" and (made.first_text_seconds, made.first_audio_seconds) == (2.0, 6.0)
    assert (made.settings, made.prompt_rows, made.layout) == ({"cfg": 1.0}, 12, {"streams": 2})
    assert (made.load_seconds, made.quantization, made.notes) == (30.0, "q8_0", ("a note",))


def test_answer_is_exported_as_plain_json() -> None:
    layout = MappingProxyType({"streams": 2, "codec_first": 300})
    told = json.loads(replace(collected(EVENTS).answer("stop"), layout=layout).to_json())
    assert told["layout"] == dict(layout)
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(told["audio"])), dtype="float32")
    assert rate == 16000
    np.testing.assert_allclose(samples, SAMPLES, atol=1 / 32768)
    assert told["streams"] == ROWS.tolist() and told["token_ids"][:3] == [7, 65, 66]
    assert json.loads(collected(EVENTS[:3]).answer().to_json())["audio"] is None


def test_answer_is_converted_to_the_next_message() -> None:
    def parts(answer: Answer) -> tuple[object, ...]:
        return check_messages([USER, answer.message(), USER])[1].parts

    whole = collected(EVENTS).answer("stop")
    text, audio = parts(whole)
    assert text.text == "three" and isinstance(audio, AudioPart) and audio.streams is not None  # type: ignore[attr-defined]
    np.testing.assert_array_equal(audio.streams, ROWS)
    assert collected(EVENTS[:3]).answer().message() == {"role": "assistant", "content": "three"}
    assert collected(()).answer().message() == {"role": "assistant", "content": ""}
    [heard] = parts(collected((AudioPiece(SAMPLES, 16000, 0),)).answer())
    assert isinstance(heard, AudioPart) and isinstance(heard.source, tuple) and heard.source[1] == 16000


def test_the_last_answer_is_the_result() -> None:
    answer = collected(EVENTS).answer("stop")
    assert last_answer(iter((*EVENTS, answer))) is answer
    with pytest.raises(Cancelled, match="stopped before it ended"):
        last_answer(iter(EVENTS))
