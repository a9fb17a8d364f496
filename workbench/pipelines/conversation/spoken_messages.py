"""Reads the recordings in the messages of a conversation."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from workbench.audio.check import check_sound
from workbench.audio.read import Recording, read
from workbench.core.errors import BadInput
from workbench.pipelines.text.text_conversation import check_text
from workbench.session.messages import AudioFile, AudioPart, Message, check_messages, where_of
from workbench.system.tempdirs import tempdir

FAINTEST = 1 / 32768  # amplitude of the quietest sound that 16 bits hold


def read_recording(
    part: AudioPart, message: int, place: int, longest: float | None, reason: str = "a conversation takes a recording"
) -> Recording:
    """Returns the recording of a part as 16 kHz mono.

    Args:
        part: with a recording, not with streams.
        message: the number of its message, from 0, for the user.
        place: its number in the message, from 0.
        longest: the most seconds; None for any length.
        reason: what takes a recording in one piece, which is the reason for the limit.

    Raises `BadInput`, which names message and part, for a recording that cannot be read, is silent or is too long.
    """
    where = where_of(message, place)
    try:
        recording = _read(part)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
    if longest is not None and recording.seconds > longest:
        raise BadInput(
            f"{where}: the recording is {recording.seconds:.1f} s long; expected at most {longest:g} s, as {reason} "
            "in one piece"
        )
    if np.abs(recording.samples).max() < FAINTEST:
        raise BadInput(f"{where}: the recording of {recording.seconds:.1f} s is silent; expected sound")
    return recording


def checked_messages(messages: Sequence[Any], accepts_audio: bool, model: str) -> list[Message]:
    """Returns the messages of a conversation, checked as far as possible without the model.

    Args:
        accepts_audio: whether the model takes recordings.
        model: its name.

    Raises `BadInput` for a malformed conversation, and for a recording that no model or that this one cannot hear.
    """
    if not accepts_audio:
        return list(check_text(list(messages), model))
    checked = check_messages(list(messages))
    check_recordings(checked)
    return list(checked)


def check_recordings(messages: Sequence[Message]) -> None:
    """Raises `BadInput`, which names message and part, for a file that holds no sound; decodes its beginning alone."""
    for number, message in enumerate(messages):
        for place, part in enumerate(message.parts):
            if not isinstance(part, AudioPart) or not isinstance(part.source, (str, os.PathLike, AudioFile)):
                continue
            try:
                with _at_hand(part) as source:
                    check_sound(source)
            except BadInput as error:
                raise BadInput(f"{where_of(number, place)}: {error}") from error


def _read(part: AudioPart) -> Recording:
    with _at_hand(part) as source:
        return read(source)


@contextlib.contextmanager
def _at_hand(part: AudioPart) -> Iterator[Any]:
    """Yields the recording of a part as `read` takes it; the content of a file is in a file for that time."""
    source = part.source
    if source is None:
        raise BadInput("it has streams and no recording; expected a recording")
    if not isinstance(source, AudioFile):
        yield source
        return
    with tempdir() as folder:
        place = folder / f"recording.{source.format}"  # named so in messages
        place.write_bytes(source.content)
        yield place
