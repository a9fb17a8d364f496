"""Reads standard input if an argument is a dash: a prompt's text, or the bytes of a recording."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.core.errors import BadInput, Unavailable
from workbench.system.tempdirs import make_tempdir, remove_tempdir

DASH = "-"
MAX_BYTES = 4 << 30  # as much as a WAV file can hold; a pipe may be endless, and its bytes go to the disk
_PIECE = 1 << 20
_EXAMPLE = "cat talk.wav | workbench transcribe - --model M"


def read_prompt(prompt: str) -> str:
    """Returns the prompt; a dash reads it from standard input, without the line break at its end.

    As in files, a byte order mark at the beginning is left out, and lines may end as on Windows.
    """
    if prompt != DASH:
        return prompt
    if sys.stdin is None or sys.stdin.closed:
        raise BadInput("standard input is closed; expected a text, as in: workbench generate - --model M < prompt.txt")
    try:
        return sys.stdin.read().removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"the prompt on stdin is not {error.encoding} text: {error.reason}") from error


@contextlib.contextmanager
def recording_paths(audios: Sequence[str]) -> Iterator[list[str]]:
    """Yields the paths of the recordings; a dash becomes a temporary file with the bytes from standard input.

    That file is named `-`, so that messages and tables use the user's name for it. Raises `BadInput` if standard input
    is empty or a terminal, `Unavailable` if the disk has no space.
    """
    if DASH not in audios:
        yield list(audios)
        return
    if list(audios).count(DASH) > 1:
        raise BadInput("- stands for standard input and occurs more than once; expected it once")
    folder = make_tempdir()
    try:
        path = folder / DASH
        _keep(path)
        yield [str(path) if audio == DASH else audio for audio in audios]
    finally:
        remove_tempdir(folder)


def _keep(place: Path) -> None:
    """Writes the bytes of standard input into a file."""
    if sys.stdin is None or sys.stdin.closed:
        raise BadInput(f"standard input is closed; expected a recording, as in: {_EXAMPLE}")
    if sys.stdin.isatty():
        raise BadInput(f"standard input is a terminal; expected a recording, as in: {_EXAMPLE}")
    size = 0
    try:
        with place.open("wb") as file:
            while piece := sys.stdin.buffer.read(_PIECE):
                size += len(piece)
                if size > MAX_BYTES:
                    raise BadInput(
                        f"standard input holds more than {MAX_BYTES >> 30} GB; expected a recording that fits, or "
                        "its file"
                    )
                file.write(piece)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable(f"the recording on standard input found no room in {place.parent}; make room") from error
        raise BadInput(f"standard input cannot be read: {error.strerror or error}") from error
    if not size:
        raise BadInput(f"standard input is empty; expected a recording, as in: {_EXAMPLE}")
