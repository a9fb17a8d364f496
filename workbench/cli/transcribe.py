"""Transcribes several recordings for the command line, with a progress line.

A recording that is bad, or that ends the session's process, does not affect the others. This file prints only to a
terminal's stderr.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from workbench.audio.check import check_sound
from workbench.audio.domain import SILENCE
from workbench.core.errors import BadInput, SessionDied, WorkbenchError
from workbench.registry.catalogue import find_card, read_catalogue
from workbench.registry.domains import alternative_model
from workbench.registry.handle import OpenSession
from workbench.session.values import Event, Partial, Progress, Transcript
from workbench.text.scripts import clipped, display_width

MIN_TEXT_COLUMNS = 12  # least columns for the growing text beside the name of its recording

Result = tuple[int, Transcript | BadInput | SessionDied]
Opened = Callable[[], AbstractContextManager[tuple[OpenSession, dict[str, Any]]]]


def transcribed(opened: Opened, audios: Sequence[str]) -> Generator[Result, None, None]:
    """Yields each recording's number with its transcript or its error, as they finish.

    Opens the session, and gives the options of its calls, only if one of the recordings holds sound.
    """
    refused: list[BadInput] = []  # of the first recordings; the session finds the others that hold no sound
    for audio in audios:
        try:
            check_sound(audio)
        except BadInput as error:
            refused.append(error)
            continue
        break
    yield from enumerate(refused)
    if readable := audios[len(refused) :]:
        with opened() as (session, options), contextlib.closing(transcripts(session, readable, options)) as found:
            for number, result in found:
                yield len(refused) + number, result


def transcripts(
    session: OpenSession, audios: Sequence[str], options: Mapping[str, Any]
) -> Generator[Result, None, None]:
    """Yields each recording's number with its transcript or its error, as they finish.

    If a whole batch fails, its recordings that had started are tried again, one at a time.
    """
    waiting = list(range(len(audios)))
    single_tries: set[int] = set()  # recordings to try alone; they are the first in the queue
    while waiting:
        batch = waiting[:1] if waiting[0] in single_tries else waiting
        started: set[int] = set()
        finished: set[int] = set()
        try:
            with contextlib.closing(_events(session, [audios[number] for number in batch], options)) as events:
                for place, event in events:
                    started.add(batch[place])
                    if isinstance(event, (Transcript, BadInput)):
                        finished.add(batch[place])
                        yield batch[place], event
            left = [audios[number] for number in batch if number not in finished]
            if left:
                raise WorkbenchError(f"{Path(left[0]).name}: the session ended without a transcript")
        except (BadInput, SessionDied) as error:
            left_over = [number for number in batch if number not in finished]
            suspects = [number for number in left_over if number in started] or left_over[:1]
            if len(suspects) == 1:
                finished.update(suspects)
                yield suspects[0], error
            single_tries.update(suspects)
        waiting = [number for number in waiting if number not in finished]


def _events(
    session: OpenSession, audios: Sequence[str], options: Mapping[str, Any]
) -> Generator[tuple[int, Event | BadInput], None, None]:
    """Yields the events of a batch, and shows each on the progress line."""
    line = ProgressLine()
    try:
        with contextlib.closing(session.stream_batch(audios, **options)) as events:
            for place, event in events:
                name = Path(audios[place]).name
                if isinstance(event, Progress):
                    line.show(f"{name}: {event.activity}, {event.done:.0f} of {event.total:.0f} s")
                elif isinstance(event, Partial):
                    line.show(f"{name}: ", event.text)
                elif isinstance(event, (Transcript, BadInput)):
                    line.clear()
                yield place, event
    finally:
        line.clear()


def doubts(transcript: Transcript, model: str) -> list[str]:
    """Returns lines about a recording outside the model's domain; unless silent, they name a model that may fit."""
    if transcript.doubt is None:
        return []
    if transcript.doubt.kind == SILENCE:
        return [transcript.doubt.sentence]
    catalogue = read_catalogue()
    suggestion = alternative_model(find_card(model, catalogue), catalogue.cards)
    download = (
        f" (downloads {suggestion.megabytes} MB)"
        if suggestion and suggestion.kind == "hub" and suggestion.megabytes
        else ""
    )
    hint = f"; try --model {suggestion.id}{download}" if suggestion else ""
    return [transcript.doubt.sentence + hint]


class ProgressLine:
    """One line of progress on a terminal that overwrites itself.

    It is silent if stderr is not a terminal, and on one that cannot clear a line (`TERM=dumb`).
    """

    def __init__(self) -> None:
        self.shown = False

    def show(self, text: str, growing: str = "") -> None:
        """Replaces the line with the beginning of `text` and the end of `growing`, as far as they fit."""
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            width = shutil.get_terminal_size().columns - 1  # a full line would wrap
            start = clipped(_on_one_line(text), max(width - MIN_TEXT_COLUMNS, MIN_TEXT_COLUMNS) if growing else width)
            end = clipped(_on_one_line(growing), width - display_width(start), keep_end=True)
            print(f"\r\x1b[K{start}{end}", end="", file=sys.stderr, flush=True)
            self.shown = True

    def fetching(self, share: float, activity: str) -> None:
        """Shows progress; used as a registry's callback."""
        self.show(f"{activity} ({share:.0%})")

    def clear(self) -> None:
        """Removes the line."""
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.shown = False


def _on_one_line(text: str) -> str:
    """Returns the text with a space for each control character, because these would move the cursor."""
    return "".join(" " if unicodedata.category(char) == "Cc" else char for char in text)
