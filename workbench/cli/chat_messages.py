"""The messages that the arguments of `workbench chat` describe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.audio.check import check_sound
from workbench.cli.standard_input import read_prompt
from workbench.core.errors import BadInput
from workbench.formats.text_files import read_text
from workbench.session.messages import AudioPart, check_messages
from workbench.session.values import AudioSource


def conversation_of(
    text: str | None, recordings: Sequence[str], system: str | None, file: Path | None
) -> list[Mapping[str, Any]]:
    """Returns the messages that the arguments describe; raises `BadInput` for messages that no model can answer."""
    messages: list[Mapping[str, Any]] = read_messages(file) if file else []
    if system and messages and isinstance(messages[0], Mapping) and messages[0].get("role") == "system":
        raise BadInput(f"{file} begins with a system message, and --system gives another; expected one of them")
    if system:
        messages.insert(0, {"role": "system", "content": system})
    if text is not None or recordings:
        paths = [str(Path(each).absolute()) if each else each for each in recordings]
        messages.append(user_message(None if text is None else read_prompt(text), paths))
    folder = file.absolute().parent if file else None
    found = check_messages(messages, folder)
    for path in files_in(found):
        check_sound(path)
    return list(found)  # type: ignore[arg-type]


def files_in(messages: Sequence[Any]) -> list[str]:
    """Returns the paths of the recordings in messages that have been checked."""
    parts = [part for message in messages for part in message.parts if isinstance(part, AudioPart)]
    return [part.source for part in parts if isinstance(part.source, str)]


def user_message(text: str | None, recordings: Sequence[AudioSource]) -> dict[str, Any]:
    """Returns a user's message: the recordings, then the text."""
    if not recordings:
        return {"role": "user", "content": text or ""}
    parts: list[dict[str, Any]] = [{"type": "audio", "audio": each} for each in recordings]
    return {"role": "user", "content": [*parts, *([{"type": "text", "text": text}] if text else [])]}


def read_messages(file: Path) -> list[Mapping[str, Any]]:
    """Returns the messages in a JSON file: a list, or a mapping with the list as `messages`."""
    try:
        text = read_text(file)
    except BadInput as error:
        raise BadInput(f"{file} cannot be read: {error}") from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file} is not JSON: {error}") from error
    found = content.get("messages") if isinstance(content, Mapping) else content
    if not isinstance(found, list):
        raise BadInput(f"{file} holds no list of messages; expected one, as docs/chat.md shows")
    return found
