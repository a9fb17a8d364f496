"""The command `workbench chat`: one answer to a text, a recording or a whole conversation.

Text streams to stdout; the answer's audio goes to a file. `workbench.cli.chat_terminal` has the chat in a terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from workbench.audio.check import check_sound
from workbench.cli.standard_input import DASH, read_prompt, recording_paths
from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.formats.text_files import read_text
from workbench.registry.handle import OpenSession
from workbench.session.conversation import Answer, AnswerSoFar, AudioPiece
from workbench.session.messages import AudioPart, check_messages
from workbench.session.values import AudioSource, Piece
from workbench.system.atomic_files import check_not_read, write_whole

Say = Callable[[str], None]
"""A function that prints a sentence on stderr."""

Opened = Callable[[], AbstractContextManager[tuple[OpenSession, dict[str, Any]]]]
"""Opens the session, and gives the options of its calls."""


def chat(parsed: argparse.Namespace, opened: Opened, say: Say) -> int:
    """Answers once, or chats in a terminal until the user ends the chat; returns the exit status."""
    place = sound_place(parsed.out) if parsed.out else None
    if parsed.text is None and not parsed.audio and parsed.messages is None:
        if parsed.json or sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
            raise BadInput("there is nothing to answer; expected a text, --audio or --messages")
        from workbench.cli.chat_terminal import TerminalChat

        with opened() as (session, options):
            return TerminalChat(session, options, place, parsed.system or "", say).run()
    if parsed.text == DASH and DASH in parsed.audio:
        raise BadInput("- stands for standard input, and both the text and --audio name it; expected one of them")
    with recording_paths(parsed.audio) as paths:
        messages = conversation_of(parsed.text, paths, parsed.system, parsed.messages)
        if place:
            check_not_read("--out", place, files_in(messages))
        with opened() as (session, options):
            answer = print_answer(session, messages, options, not parsed.json, say)
            report(answer, place, say)
            if parsed.json:
                print(answer.to_json(), flush=True)
            if answer.finish == "cancelled":
                raise KeyboardInterrupt  # the answer so far is printed and written
    return 0


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


def sound_place(path: Path) -> Path:
    """Returns the path of the WAV file to write; raises `BadInput` if no WAV file can be there."""
    if path.suffix.lower() != ".wav":
        raise BadInput(f"{path} is not the name of a WAV file; expected one that ends in .wav")
    if path.is_dir() or not path.absolute().parent.is_dir():
        why = "it is a folder" if path.is_dir() else "there is no such folder"
        raise BadInput(f"{path} cannot be written: {why}")
    return path


def print_answer(
    session: OpenSession, messages: Any, options: Mapping[str, Any], prints_text: bool, say: Say
) -> Answer:
    """Prints the text of an answer while the model generates it, and returns the answer.

    Ctrl-C stops the model within one row. The answer then holds everything so far, with `cancelled` as `finish`.

    Args:
        prints_text: whether to print the text.
    """
    partial_answer, line = AnswerSoFar(session.model, session.runtime, options), ProgressLine()
    open_line = False  # whether the last line on stdout has not ended
    try:
        with contextlib.closing(session.converse_stream(messages, **options)) as events:
            for event in events:
                partial_answer.add(event)
                if isinstance(event, Piece) and event.text and prints_text:
                    line.clear()
                    print(event.text, end="", flush=True)
                    open_line = True
                elif isinstance(event, AudioPiece):
                    if open_line:
                        print(flush=True)
                        open_line = False
                    line.show(f"speaking: {counted(event.rows, 'row')}")
    except KeyboardInterrupt:
        pass  # the answer says that it was cancelled
    finally:
        line.clear()
        if open_line:
            print(flush=True)
    return partial_answer.answer()


def report(answer: Answer, place: Path | None, say: Say, writes: str = "--out FILE.wav") -> None:
    """Writes the answer's audio, and passes to `say` what was written, the answer's notes and a limit that ended it.

    Args:
        writes: the option or command that writes the audio, for the message if there is no place.
    """
    for note in answer.notes:
        say(f"{answer.model}: {note}")
    if answer.finish == "length":
        say(f"{answer.model}: a limit cut the answer off; `workbench options {answer.model}` lists the limits")
    if answer.audio is None:
        if place is not None:
            say(f"{answer.model}: the answer has no audio, so {place} was not written")
        return
    if place is None:
        say(f"{answer.model}: the answer has {answer.audio_seconds:.1f} s of audio; {writes} writes it")
    else:
        write_sound(answer, place)
        say(f"{answer.model}: {place} holds {answer.audio_seconds:.1f} s of audio")


def write_sound(answer: Answer, place: Path) -> None:
    """Writes the answer's audio as a WAV file; raises an error of `write_whole` if that is impossible."""
    write_whole(place, answer.wav())
