"""The messages of a conversation: plain mappings in the shape of OpenAI's chat parts, checked and made frozen values.

A message is `{"role": "system" | "user" | "assistant", "content": ...}`. The content is a text or a list of parts:

- `{"type": "text", "text": "..."}`
- `{"type": "audio", "audio": path}`, or a recording in memory in place of the path (`workbench.audio.in_memory`)
- `{"type": "input_audio", "input_audio": {"data": base64 of a file, "format": "wav"}}`
- of an assistant: `{"type": "audio", "streams": rows}`, the codec tokens of speech that it generated before

This file decodes no audio and knows no model.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.audio.in_memory import samples_and_rate
from workbench.core.characters import check_characters
from workbench.core.errors import BadInput
from workbench.session.values import AudioSource

ROLES = ("system", "user", "assistant")
KINDS = ("text", "audio", "input_audio")
MAX_RECORDING_BYTES = 256 << 20  # of a recording inside a message; a longer one belongs in a file


@dataclass(frozen=True)
class TextPart:
    """A text."""

    text: str


@dataclass(frozen=True)
class AudioFile:
    """The content of an audio file."""

    content: bytes
    format: str  # the suffix of its name, such as wav


@dataclass(frozen=True, eq=False)
class AudioPart:
    """A recording, or speech that the assistant generated before. Exactly one of the two is set."""

    source: AudioSource | AudioFile | None = None  # an absolute path, (samples, sample rate), or a file's content
    streams: np.ndarray | None = None  # global ids [rows, streams], as `Answer.streams` has them


Part = TextPart | AudioPart


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The texts of all its parts, one line each."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


def where_of(message: int, part: int) -> str:
    """Returns the name of a part in messages to the user; both numbers count from 0."""
    return f"message {message + 1}, part {part + 1}"


def check_messages(messages: Any, folder: Path | None = None) -> tuple[Message, ...]:
    """Returns a conversation that a model can answer.

    Args:
        messages: mappings as at the top of this file, or a text alone, which becomes one message of the user. Messages
            that have been checked before are returned as they are.
        folder: relative paths of recordings start here; by default the working folder.

    Raises `BadInput` for anything else; the error names the message and the part.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping) or not isinstance(messages, Sequence):
        raise BadInput(f"the conversation is of type {type(messages).__name__}; expected a list of messages, or a text")
    if not messages:
        raise BadInput("the conversation has no messages; expected at least one from the user")
    checked = tuple(_message(message, number, folder) for number, message in enumerate(messages))
    if checked[-1].role != "user":
        raise BadInput(
            f"message {len(checked)}, the last one, is from the {checked[-1].role}; expected one from the user, which "
            "the model answers"
        )
    return checked


def _message(value: Any, number: int, folder: Path | None) -> Message:
    where = f"message {number + 1}"
    if isinstance(value, Message):
        return value
    if not isinstance(value, Mapping):
        raise BadInput(f"{where} is of type {type(value).__name__}; expected a mapping with role and content")
    for key in ("role", "content"):
        if key not in value:
            raise BadInput(f"{where} has no {key}; expected role and content")
    role, content = value["role"], value["content"]
    if role not in ROLES:
        raise BadInput(f"the role of {where} is {role!r:.80}; expected one of {', '.join(ROLES)}")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    elif isinstance(content, Mapping) or not isinstance(content, Sequence):
        raise BadInput(
            f"the content of {where} is of type {type(content).__name__}; expected a text or a list of parts"
        )
    if not content:
        raise BadInput(f"{where} has no parts; expected a text or a recording")
    parts = tuple(_part(part, role, where_of(number, place), folder) for place, part in enumerate(content))
    # A model may answer with an empty text, and such an answer may be followed by another question.
    if role != "assistant" and not any(isinstance(part, AudioPart) or part.text.strip() for part in parts):
        raise BadInput(f"{where} is empty; expected a text" + (" or a recording" if role == "user" else ""))
    return Message(role, parts)


def _part(value: Any, role: str, where: str, folder: Path | None) -> Part:
    if not isinstance(value, Mapping):
        raise BadInput(f'{where}: it is of type {type(value).__name__}; expected a mapping such as {{"type": "text"}}')
    kind = value.get("type")
    if kind not in KINDS:
        raise BadInput(f"{where}: its type is {kind!r:.80}; expected one of {', '.join(KINDS)}")
    key = "streams" if kind == "audio" and "streams" in value else kind
    for name in value:
        if name not in ("type", key):
            raise BadInput(f"{where}: it has the unknown key {name!r:.80}; a part of type {kind} has type and {key}")
    if key not in value:
        raise BadInput(f"{where}: it has no {key}; a part of type {kind} has type and {key}")
    value = value[key]
    if kind == "text":
        if not isinstance(value, str):
            raise BadInput(f"{where}: its text is of type {type(value).__name__}; expected a text")
        check_characters(value, f"{where}: its text")
        return TextPart(value)
    if role == "system":
        raise BadInput(f"{where}: a system message has text only; expected a part of type text")
    if key == "streams":
        if role != "assistant":
            raise BadInput(f"{where}: only an assistant generates streams; give a recording of the user as audio")
        return AudioPart(streams=_rows(value, where))
    return AudioPart(_encoded(value, where) if kind == "input_audio" else _source(value, where, folder))


def _source(value: Any, where: str, folder: Path | None) -> AudioSource:
    """Returns a recording with an absolute path, because another process may have another working folder."""
    if isinstance(value, (str, os.PathLike)):
        if not str(value):
            raise BadInput(f"{where}: the path of the recording is empty; expected an audio file")
        return str(((folder or Path()) / Path(value)).absolute())
    try:
        return samples_and_rate(value)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def _encoded(value: Any, where: str) -> AudioFile:
    if not isinstance(value, Mapping) or not {"data", "format"} <= set(value):
        raise BadInput(f'{where}: its input_audio is not a mapping with "data" and "format"; expected both')
    data, ending = value["data"], value["format"]
    if not isinstance(data, str) or not isinstance(ending, str) or not ending.isalnum() or len(ending) > 8:
        raise BadInput(f'{where}: expected "data" of input_audio as base64, and "format" such as wav or mp3')
    if len(data) > MAX_RECORDING_BYTES * 4 // 3 + 4:
        raise BadInput(f"{where}: its recording is larger than {MAX_RECORDING_BYTES >> 20} MB; expected a shorter one")
    try:
        content = base64.b64decode("".join(data.split()), validate=True)  # base64 tools write lines
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"{where}: the data of its input_audio is not base64: {error}") from error
    if not content:
        raise BadInput(f"{where}: the data of its input_audio is empty; expected an audio file")
    return AudioFile(content, ending.lower())


def _rows(value: Any, where: str) -> np.ndarray:
    expected = "expected rows of whole numbers, one for each stream, as Answer.streams has them"
    try:
        rows = np.asarray(value)
    except ValueError as error:  # rows of several lengths
        raise BadInput(f"{where}: its streams are not a table; {expected}") from error
    if rows.ndim != 2 or not rows.size or rows.dtype.kind not in "iu":
        raise BadInput(f"{where}: its streams have the shape {rows.shape} and the type {rows.dtype}; {expected}")
    return rows.astype(np.int64)
