"""Conversation messages: every accepted form, and a one-line error with message and part for every mistake."""

from __future__ import annotations

import base64
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.sound_files import Decoder
from workbench.core.errors import BadInput
from workbench.session.messages import AudioFile, AudioPart, Message, TextPart, check_messages

QUESTION = {"role": "user", "content": "say three"}
SOUND = (np.zeros(160, np.float32), 16000)
DATA = base64.b64encode(b"RIFF").decode()


def user(*parts: Any) -> list[dict[str, Any]]:
    return [QUESTION, {"role": "assistant", "content": "three"}, {"role": "user", "content": list(parts)}]


def test_text_alone_is_a_user_message() -> None:
    assert check_messages("hello") == (Message("user", (TextPart("hello"),)),)
    assert check_messages(check_messages([QUESTION])) == check_messages([QUESTION])


def test_every_kind_of_message_part_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [[300, 400], [301, 401]]
    messages = check_messages(
        [
            {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
            {"role": "user", "content": [{"type": "audio", "audio": "a.wav"}, {"type": "text", "text": "what?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": ""}, {"type": "audio", "streams": rows}]},
            {"role": "user", "content": [{"type": "audio", "audio": SOUND}]},
            {"role": "assistant", "content": ""},
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": DATA, "format": "WAV"}}]},
        ]
    )
    assert [message.role for message in messages] == ["system", *["user", "assistant"] * 2, "user"]
    assert messages[0].text == "be brief" and messages[1].text == "what?"
    recording, streams_part, sound, file = (messages[n].parts[p] for n, p in ((1, 0), (2, 1), (3, 0), (5, 0)))
    assert (
        isinstance(recording, AudioPart) and recording.source == str(tmp_path / "a.wav") and recording.streams is None
    )
    assert isinstance(streams_part, AudioPart) and streams_part.source is None and streams_part.streams is not None
    assert streams_part.streams.tolist() == rows and streams_part.streams.dtype == np.int64
    assert isinstance(sound, AudioPart) and isinstance(sound.source, tuple) and sound.source[0] is SOUND[0]
    assert isinstance(file, AudioPart) and file.source == AudioFile(b"RIFF", "wav")
    restored = pickle.loads(pickle.dumps(messages))
    assert [message.role for message in restored] == [message.role for message in messages]


@pytest.mark.parametrize("audio", [{"array": SOUND[0], "sampling_rate": 16000, "path": None}, Decoder(SOUND[0][None])])
def test_audio_of_a_row_of_datasets_is_accepted(audio: Any) -> None:
    [*_, message] = check_messages(user({"type": "audio", "audio": audio}))
    [part] = message.parts
    assert isinstance(part, AudioPart) and isinstance(part.source, tuple) and part.source[1] == 16000
    assert part.source[0].size == SOUND[0].size and isinstance(part.source[0], np.ndarray)


def test_relative_audio_paths_are_resolved_against_the_given_folder(tmp_path: Path) -> None:
    [message] = check_messages([{"role": "user", "content": [{"type": "audio", "audio": "a.wav"}]}], tmp_path)
    part = message.parts[0]
    assert isinstance(part, AudioPart) and part.source == str(tmp_path / "a.wav")


def test_base64_may_have_lines_of_limited_length() -> None:
    data = base64.encodebytes(bytes(range(200))).decode()
    sound = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    [message] = check_messages([{"role": "user", "content": [sound]}])
    [part] = message.parts
    assert data.count("\n") > 1
    assert isinstance(part, AudioPart) and part.source == AudioFile(bytes(range(200)), "wav")


PART = "message 3, part 1: "
INVALID: list[tuple[Any, str]] = [
    ([], "the conversation has no messages; expected at least one from the user"),
    ({"role": "user"}, "the conversation is of type dict; expected a list of messages, or a text"),
    (3, "the conversation is of type int; "),
    ("  ", "message 1 is empty; expected a text or a recording"),
    ([QUESTION, "three"], "message 2 is of type str; expected a mapping with role and content"),
    ([{"content": "x"}], "message 1 has no role; "),
    ([{"role": "user"}], "message 1 has no content; "),
    ([{"role": "tool", "content": "x"}], "the role of message 1 is 'tool'; expected one of system, user, assistant"),
    ([{"role": "user", "content": None}], "the content of message 1 is of type NoneType; "),
    ([{"role": "user", "content": {"type": "text"}}], "the content of message 1 is of type dict; "),
    ([{"role": "user", "content": []}], "message 1 has no parts; "),
    ([{"role": "system", "content": ""}, QUESTION], "message 1 is empty; expected a text"),
    ([QUESTION, {"role": "assistant", "content": "x"}], "message 2, the last one, is from the assistant; "),
    (user("text"), PART + "it is of type str; "),
    (user({"text": "x"}), PART + "its type is None; expected one of text, audio, input_audio"),
    (user({"type": "image_url", "image_url": "x"}), PART + "its type is 'image_url'; "),
    (user({"type": "text"}), PART + "it has no text; "),
    (user({"type": "text", "text": 3}), PART + "its text is of type int; "),
    (user({"type": "text", "text": "\ud83d"}), PART + "its text holds half a character; expected a text that can be"),
    (user({"type": "text", "text": "caf\udce9"}), PART + "its text holds the byte 0xE9, which is not UTF-8; expected "),
    (user({"type": "text", "text": "x", "audio": "y"}), PART + "it has the unknown key 'audio'; "),
    (user({"type": "audio"}), PART + "it has no audio; "),
    (user({"type": "audio", "audio": ""}), PART + "the path of the recording is empty; "),
    (user({"type": "audio", "audio": 3}), PART + "a recording is a path or (samples, sample_rate), not int"),
    (user({"type": "audio", "audio": [0.0, 0.1, 0.2]}), PART + "a recording is a path or (samples, sample_rate), not "),
    (user({"type": "audio", "audio": io.BytesIO()}), PART + "a recording is a path or (samples, sample_rate), not Byt"),
    (
        user({"type": "audio", "audio": [[[0.1], [0.1, 0.2]], 16000]}),
        PART + "the samples of a recording in ",
    ),
    (
        user({"type": "audio", "audio": (16000, np.zeros(9))}),
        PART + "a recording in memory is (samples, ",
    ),
    (
        user({"type": "audio", "audio": (np.zeros(9), "16000")}),
        PART + "the sample rate of a recording in ",
    ),
    (user({"type": "audio", "streams": [[1]]}), PART + "only an assistant generates streams; "),
    (user({"type": "input_audio", "input_audio": DATA}), PART + "its input_audio is not a mapping with "),
    (user({"type": "input_audio", "input_audio": {"data": DATA}}), PART + "its input_audio is not a mapping with "),
    (user({"type": "input_audio", "input_audio": {"data": "é", "format": "wav"}}), PART + "the data of its "),
    (user({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}), PART + "the data of its "),
    (user({"type": "input_audio", "input_audio": {"data": DATA, "format": "../x"}}), PART + 'expected "data" of '),
    (
        [{"role": "system", "content": [{"type": "audio", "audio": "a.wav"}]}, QUESTION],
        "message 1, part 1: a system message has text only; ",
    ),
    *(
        (
            [{"role": "assistant", "content": [{"type": "audio", "streams": rows}]}, QUESTION],
            "message 1, part 1: its streams ",
        )
        for rows in ([], [1, 2], [[1], [2, 3]], [[0.5]], "x")
    ),
]


@pytest.mark.parametrize(("messages", "error"), INVALID)
def test_invalid_message_raises_one_line_error(messages: Any, error: str) -> None:
    with pytest.raises(BadInput) as raised:
        check_messages(messages)
    assert str(raised.value).startswith(error) and "\n" not in str(raised.value)
