"""Replay bundles: round trip, untrusted files raise one-line errors, and recorded ids are compared."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.speech import replay
from workbench.speech.chat_form import FORMAT
from workbench.speech.replay import Recorded, Sound, first_difference, read_bundle, write_bundle

COLUMN = {"model": "demo/speechlm|pytorch", "system": "be brief", "options": {"seed": 3, "modalities": "text_audio"}}
ANSWER = {"token_ids": [7, 300, 2], "streams": [[400, 500], [401, 501]], "finish": "stop", "settings": {"seed": 3}}
SOUNDS = [Sound(np.arange(-5, 5, dtype=np.int16), 16000), Sound(np.array([32767, -32768], np.int16), 24000)]


def chat(**changed: Any) -> dict[str, Any]:
    answer = {
        "column": COLUMN,
        "text": "drei “7”",
        "sound": 1,
        "finish": "stop",
        "error": "",
        "pieces": [["drei “7”", 1]],
        "answer": ANSWER,
    }
    turn = {"user": {"text": "say it", "sound": 0}, "answers": [answer, None]}
    return {"title": "say it", "created": "2026-11-22", "columns": [COLUMN, COLUMN], "turns": [turn], **changed}


def zipped(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def files_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_replay_bundle_round_trips_conversation_and_audio() -> None:
    content = write_bundle(chat(), SOUNDS, {"torch": "2.13"})
    assert content == write_bundle(chat(), SOUNDS, {"torch": "2.13"}), "the same conversation is the same file"
    back, sounds = read_bundle(content)
    assert back == {**chat(), "versions": {"torch": "2.13"}}
    for one, other in zip(SOUNDS, sounds, strict=True):
        assert one.rate == other.rate and other.samples.dtype == np.int16
        np.testing.assert_array_equal(one.samples, other.samples)
    files = files_of(content)
    assert set(files) == {"README.txt", "chat.json", "audio/000.wav", "audio/001.wav"}
    assert json.loads(files["chat.json"])["turns"][0]["answers"][0]["sound"] == "audio/001.wav"


def test_bundle_that_was_unpacked_and_zipped_again_is_read() -> None:
    files = files_of(write_bundle(chat(), SOUNDS, {}))
    back, sounds = read_bundle(zipped({"audio/": b"", **dict(sorted(files.items()))}))
    assert back["turns"] == chat()["turns"] and len(sounds) == len(SOUNDS)


def test_half_a_character_in_a_title_does_not_prevent_saving() -> None:
    back, _ = read_bundle(write_bundle(chat(title="hi \ud83d"), SOUNDS, {}))
    assert back["title"] == "hi ?"


def replay_json(**changed: Any) -> bytes:
    files = files_of(write_bundle(chat(), SOUNDS, {}))
    files["chat.json"] = json.dumps({**json.loads(files["chat.json"]), **changed}).encode()
    return zipped(files)


def with_file(name: str, content: bytes) -> bytes:
    return zipped({**files_of(write_bundle(chat(), SOUNDS, {})), name: content})


def lying_size() -> bytes:
    """Returns a zip file whose directory understates the size of a recording."""
    content = bytearray(with_file("audio/001.wav", b"RIFF" * 100))
    place = content.rindex(b"audio/001.wav") - 46
    content[place + 24 : place + 28] = (8).to_bytes(4, "little")
    return bytes(content)


def answer_with(**changed: Any) -> dict[str, Any]:
    return {"column": COLUMN, "finish": "stop", **changed}


HOSTILE = {
    "no zip": (b"RIFF....", "not a replay bundle"),
    "empty": (b"", "not a replay bundle"),
    "no chat": (zipped({"audio/000.wav": b""}), "has no chat.json"),
    "a path out of the folder": (with_file("../evil.py", b""), "holds '../evil.py'"),
    "a pickle": (with_file("audio/x.pkl", b""), "holds 'audio/x.pkl'"),
    "no wav": (with_file("audio/000.wav", b"nothing"), "audio/000.wav in the zip file is not a WAV file"),
    "no json": (with_file("chat.json", b"{"), "is not JSON"),
    "not a number": (with_file("chat.json", b'{"a": NaN}'), "is not JSON"),
    "deep": (with_file("chat.json", b"[" * 100_000), "is not JSON"),
    "too many values": (with_file("chat.json", b"[" + b"," * replay.MAX_VALUES), "has more than 2,097,152 values"),
    "a list": (with_file("chat.json", b"[]"), "is not a JSON object"),
    "another format": (replay_json(format="else"), f"expected the format {FORMAT}"),
    "no turns": (replay_json(turns=None), "has no list of turns"),
    "no columns": (replay_json(columns=[]), "has no columns"),
    "a sound that is not there": (
        replay_json(turns=[{"user": {"text": "", "sound": "audio/009.wav"}, "answers": []}]),
        "names a sound that is not in the file",
    ),
    "a path as sound": (
        replay_json(turns=[{"user": {"text": "", "sound": "/etc/passwd"}, "answers": []}]),
        "names a sound that is not in the file",
    ),
    "ids that are text": (
        replay_json(
            turns=[{"user": {}, "answers": [{"column": COLUMN, "finish": "stop", "answer": {"streams": [["1"]]}}]}]
        ),
        "ids that are not whole numbers",
    ),
    "a finish of its own": (
        replay_json(turns=[{"user": {}, "answers": [answer_with(finish="<b>")]}]),
        "has the finish '<b>'",
    ),
    "a size that is not true": (lying_size(), "zip file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_untrusted_replay_file_raises_one_line_error(name: str) -> None:
    content, sentence = HOSTILE[name]
    with pytest.raises(BadInput) as caught:
        read_bundle(content)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 300
    assert sentence in message or name == "a size that is not true"


def test_replay_size_limits_are_checked_before_unpacking(monkeypatch: pytest.MonkeyPatch) -> None:
    content = write_bundle(chat(), SOUNDS, {})
    for name, bound in (("MAX_FILE_BYTES", 100), ("MAX_CONTENT_BYTES", 100), ("MAX_FILES", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(replay, name, bound)
            with pytest.raises(BadInput, match="at most"):
                read_bundle(content)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_replay_bundle_is_read_or_raises_one_line_error(data: st.DataObject) -> None:
    content = bytearray(write_bundle(chat(), SOUNDS, {}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.integers(0, len(content)))])
    message = error_of(damaged)
    if message is None:
        back, sounds = read_bundle(damaged)
        assert back["turns"] and all(sound.samples.dtype == np.int16 for sound in sounds)
    else:
        assert message and "\n" not in message


def error_of(content: bytes) -> str | None:
    """Returns the message of the error for a file, or None."""
    try:
        read_bundle(content)
    except BadInput as error:
        return str(error)
    return None


ROWS = np.arange(400, 424).reshape(3, 8)
RECORDED = Recorded((7, 300, 3, 6, 8, 400, 408, 416, 2), ROWS)


def with_id(row: int, stream: int) -> np.ndarray:
    changed = ROWS.copy()
    changed[row, stream] += 1
    return changed


def test_first_different_row_or_token_is_reported() -> None:
    assert first_difference(RECORDED, RECORDED) == ""
    difference = first_difference(RECORDED, Recorded(RECORDED.token_ids, with_id(1, 3)))
    assert difference == "row 1 of the audio differs first: stream 3 has id 412; the recorded id is 411"
    difference = first_difference(RECORDED, Recorded(RECORDED.token_ids[:-2] + (2,), ROWS[:2]))
    assert difference == "the audio ends after 2 rows; the recorded audio has 3"
    difference = first_difference(RECORDED, Recorded((7, 301), None))
    assert difference == "token 1 of stream 0 differs first: it is 301; the recorded id is 300"
    assert first_difference(Recorded((7, 2), None), Recorded((7, 2, 2), None)).startswith(
        "stream 0 ends after 3 tokens"
    )


def test_cancelled_recording_matches_a_longer_answer() -> None:
    stopped = Recorded(RECORDED.token_ids[:7], ROWS[:2], complete=False)
    assert first_difference(stopped, RECORDED) == ""
    assert "row 0" in first_difference(stopped, Recorded(RECORDED.token_ids, with_id(0, 1)))
    assert first_difference(RECORDED, Recorded(stopped.token_ids, ROWS[:2])) != ""


def test_recorded_ids_in_json_must_be_integers() -> None:
    read = Recorded.read({"token_ids": [1, 2], "streams": ROWS.tolist(), "finish": "cancelled"})
    assert read.token_ids == (1, 2) and not read.complete and read.streams is not None
    for wrong in ({"token_ids": ["x"]}, {"token_ids": [[1]]}, {"streams": [[1], [1, 2]]}, {"token_ids": [1 << 70]}):
        with pytest.raises(BadInput):
            Recorded.read(wrong)
