"""Prints an answer while a model generates it, and writes its audio."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.registry.handle import OpenSession
from workbench.session.conversation import Answer, AnswerSoFar, AudioPiece
from workbench.session.values import Piece
from workbench.system.atomic_files import write_whole

Say = Callable[[str], None]
"""A function that prints a sentence on stderr."""


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
