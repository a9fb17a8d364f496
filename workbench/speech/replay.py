"""Replay bundles: a conversation as one zip file. People can attach it to an issue and open it again.

The file holds `chat.json` (messages, settings, seeds, versions, and the ids of each answer) and every sound as a WAV
file of 16-bit samples. A bundle may come from a stranger, so reading it checks names, sizes and types, and unpickles
nothing. `first_difference` says whether the same model gives the same ids again. This file knows no model.
"""

from __future__ import annotations

import io
import json
import re
import wave
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.formats.json_values import count_values
from workbench.speech.chat_form import FORMAT, check_chat, numbered_sounds

MAX_FILE_BYTES = 64 << 20  # bytes of the zip file
MAX_CONTENT_BYTES = 256 << 20  # bytes of all that is inside, unpacked
MAX_FILES = 1000
MAX_VALUES = 1 << 21  # in the JSON of a conversation: the ids of an hour of speech
CHAT, ABOUT = "chat.json", "README.txt"
SOUND = re.compile(r"audio/[0-9]{3,4}\.wav")
ABOUT_TEXT = """A conversation with a speech model, saved by the Speech Workbench.

chat.json   the messages, the settings, and the ids of every answer
audio/      what was said, as WAV files

Drop this file on the Chat tab to open the conversation. Replay then says whether your machine gives the same ids.
"""
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)  # the same conversation gives the same file


@dataclass(frozen=True, eq=False)
class Sound:
    """A recording or speech in 16 bits."""

    samples: np.ndarray  # int16 [samples], mono
    rate: int  # Hz

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


@dataclass(frozen=True, eq=False)
class Recorded:
    """The ids of an answer that was given before."""

    token_ids: tuple[int, ...]  # stream 0
    streams: np.ndarray | None  # [rows, streams] of the audio
    complete: bool = True  # False if somebody stopped it; a new answer may then be longer

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Recorded:
        """Returns the ids of an answer as plain JSON; raises `BadInput` for values that are not ids."""
        try:
            ids = np.asarray(answer.get("token_ids") or [], dtype=np.int64)
            streams = None if answer.get("streams") is None else np.asarray(answer["streams"], dtype=np.int64)
        except (ValueError, TypeError, OverflowError) as error:
            raise BadInput("the recorded ids are not whole numbers in rows of one length") from error
        if ids.ndim != 1 or (streams is not None and streams.ndim != 2):
            raise BadInput("the recorded ids have other dimensions; expected a list of tokens, and rows of streams")
        return cls(tuple(ids.tolist()), streams, answer.get("finish") != "cancelled")


def first_difference(recorded: Recorded, repeated: Recorded) -> str:
    """Returns one sentence about the first id in which an answer differs from a recorded one; empty if none does."""
    place, ids = _first_id(recorded, repeated)
    if recorded.streams is None or repeated.streams is None or place < _speech_begins(recorded):
        return ids or _one_sided(recorded, repeated)
    return _first_row(recorded, repeated, recorded.streams, repeated.streams) or ids


def _one_sided(recorded: Recorded, repeated: Recorded) -> str:
    if (recorded.streams is None) == (repeated.streams is None):
        return ""
    return "the answer has audio; none was recorded" if recorded.streams is None else "the answer has no audio"


def _first_row(recorded: Recorded, repeated: Recorded, recorded_rows: np.ndarray, new_rows: np.ndarray) -> str:
    if recorded_rows.shape[1] != new_rows.shape[1]:
        return f"the answer has {new_rows.shape[1]} streams; the recorded one has {recorded_rows.shape[1]}"
    common = min(len(recorded_rows), len(new_rows))
    rows, streams = np.nonzero(recorded_rows[:common] != new_rows[:common])
    if len(rows):
        row, stream = int(rows[0]), int(streams[0])
        return (
            f"row {row} of the audio differs first: stream {stream} has id {new_rows[row, stream]}; the recorded id is "
            f"{recorded_rows[row, stream]}"
        )
    if len(new_rows) < len(recorded_rows) or (recorded.complete and len(new_rows) > len(recorded_rows)):
        return f"the audio ends after {len(new_rows)} rows; the recorded audio has {len(recorded_rows)}"
    return ""


def _first_id(recorded: Recorded, repeated: Recorded) -> tuple[int, str]:
    """Returns the place of the first token of stream 0 that differs, and a sentence about it; empty if none does."""
    for number, (recorded_id, new_id) in enumerate(zip(recorded.token_ids, repeated.token_ids)):
        if recorded_id != new_id:
            return number, f"token {number} of stream 0 differs first: it is {new_id}; the recorded id is {recorded_id}"
    length = len(repeated.token_ids)
    if length < len(recorded.token_ids) or (recorded.complete and length > len(recorded.token_ids)):
        return length, f"stream 0 ends after {length} tokens; the recorded one has {len(recorded.token_ids)}"
    return length, ""


def _speech_begins(recorded: Recorded) -> int:
    """Returns the place of the first row of speech among the tokens of stream 0."""
    if recorded.streams is None or not len(recorded.streams):
        return len(recorded.token_ids)
    first = int(recorded.streams[0, 0])
    return recorded.token_ids.index(first) if first in recorded.token_ids else 0


def write_bundle(chat: Mapping[str, Any], sounds: Sequence[Sound], versions: Mapping[str, str]) -> bytes:
    """Returns a conversation as a zip file.

    Args:
        chat: as `workbench.speech.chat_form` describes it.
        sounds: the numbers in `chat` are places in this sequence.
        versions: of the packages that computed the answers.

    Raises `BadInput` for a conversation of another form.
    """
    checked = check_chat(chat, len(sounds))
    with_names = numbered_sounds(checked, lambda number: f"audio/{number:03d}.wav")
    document = {"format": FORMAT, "version": 1, **with_names, "versions": dict(versions)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, content: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, _FIXED_DATE), content, zipfile.ZIP_DEFLATED)

        add(ABOUT, ABOUT_TEXT.encode())
        # A browser may have cut a title within a character.
        add(CHAT, json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1).encode(errors="replace"))
        for number, sound in enumerate(sounds):
            add(f"audio/{number:03d}.wav", _wav(sound))
    return file.getvalue()


def read_bundle(content: bytes) -> tuple[dict[str, Any], list[Sound]]:
    """Returns the conversation and the sounds of a zip file; raises `BadInput` that says what is wrong with it."""
    if len(content) > MAX_FILE_BYTES:
        raise BadInput(f"the file has {len(content) >> 20} MB; a replay bundle has {MAX_FILE_BYTES >> 20} MB at most")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = _names(archive)
            chat = _json(_content(archive, CHAT))
            files = {name: _sound(name, _content(archive, name)) for name in names if SOUND.fullmatch(name)}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise BadInput(
            "the file is not a replay bundle, or it is damaged; expected a zip file from the Chat tab"
        ) from error
    if chat.get("format") != FORMAT or chat.get("version") != 1:
        raise BadInput(f"{CHAT} is not a conversation of this workbench; expected the format {FORMAT}, version 1")
    order = {name: number for number, name in enumerate(files)}
    try:
        numbered = numbered_sounds(chat, lambda name: order[name])
    except (KeyError, TypeError) as error:
        raise BadInput(f"{CHAT} names a sound that is not in the file") from error
    return check_chat(numbered, len(files)), list(files.values())


def _names(archive: zipfile.ZipFile) -> list[str]:
    entries = archive.infolist()
    if len(entries) > MAX_FILES:
        raise BadInput(f"the zip file holds {len(entries)} files; a replay bundle has {MAX_FILES} at most")
    size = sum(entry.file_size for entry in entries)
    if size > MAX_CONTENT_BYTES:
        raise BadInput(
            f"the zip file unpacks to {size >> 20} MB; a replay bundle has {MAX_CONTENT_BYTES >> 20} MB at most"
        )
    names = [entry.filename for entry in entries if not entry.is_dir()]  # programs that zip again add the folder
    unexpected = [name for name in names if name not in (CHAT, ABOUT) and not SOUND.fullmatch(name)]
    if unexpected or len(set(names)) < len(names):
        example = unexpected[0] if unexpected else "one name twice"
        raise BadInput(f"the zip file holds {example!r:.80}; a replay bundle has {CHAT} and audio/000.wav and so on")
    if CHAT not in names:
        raise BadInput(f"the zip file has no {CHAT}; expected a replay bundle from the Chat tab")
    return names


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as file:  # the size in the directory may be wrong, so no more than that is read
        size = archive.getinfo(name).file_size
        content = file.read(size + 1)
    if len(content) != size:
        raise BadInput(f"{name} in the zip file has another size than the zip file's directory says")
    return content


def _json(content: bytes) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    if count_values(content) > MAX_VALUES:
        raise BadInput(f"{CHAT} in the zip file has more than {MAX_VALUES:,} values, the most that are read")
    try:
        found = json.loads(content, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{CHAT} in the zip file is not JSON") from error
    if not isinstance(found, dict):
        raise BadInput(f"{CHAT} in the zip file is not a JSON object")
    return found


def _wav(sound: Sound) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(sound.rate)
        writer.writeframes(sound.samples.astype("<i2").tobytes())
    return file.getvalue()


def _sound(name: str, content: bytes) -> Sound:
    try:
        with wave.open(io.BytesIO(content)) as reader:
            if (reader.getnchannels(), reader.getsampwidth()) != (1, 2) or not 1000 <= reader.getframerate() <= 384_000:
                raise BadInput(f"{name} in the zip file is not a mono WAV file of 16-bit samples")
            samples = np.frombuffer(reader.readframes(reader.getnframes()), "<i2").astype(np.int16)
            return Sound(samples, reader.getframerate())
    except (wave.Error, EOFError, ValueError) as error:
        raise BadInput(f"{name} in the zip file is not a WAV file") from error
