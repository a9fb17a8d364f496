"""Repairs the standard streams of a program that was started with closed or unusual streams, and watches its stdout."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from workbench.core.errors import WorkbenchError
from workbench.system.atomic_files import explained_file_errors


def open_closed_streams() -> None:
    """Opens the null device for standard streams that are closed.

    Otherwise, the next opened file gets the number of a closed stream, and the messages of a library go into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number, which is this one
            os.set_inheritable(opened, True)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - until the program ends


def print_any_letter() -> None:
    r"""Makes stdout escape what it cannot encode as JSON does: `\u4e00`, and a byte 0xFF in a file's name as `\udcff`.

    So lines of JSON stay valid where the terminal or the pipe is not for UTF-8.
    """
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        codecs.register_error("workbench.json", _json_escapes)
        reconfigure(errors="workbench.json")


class WatchedOutput:
    """A stream of text that remembers its last error. argparse, for one, drops errors of what it prints."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        """Writes text, and returns the number of its letters."""
        with self._watched():
            return self._stream.write(text)

    def flush(self) -> None:
        """Writes what is buffered."""
        with self._watched():
            self._stream.flush()

    def mute(self) -> None:
        """Redirects the stream to the null device, so that the interpreter's last flush does not fail again."""
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def explained_failure(self) -> WorkbenchError | None:
        """Returns the error in one plain sentence if something could not be written, such as on a full disk, and mutes
        the stream then.

        A reader that has closed the pipe, as `head` does, is no error.
        """
        with contextlib.suppress(OSError):
            self.flush()
        if self.failure is None:
            return None
        self.mute()
        if isinstance(self.failure, BrokenPipeError):
            return None
        try:
            with explained_file_errors(Path("standard output")):
                raise self.failure
        except WorkbenchError as error:
            return error

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def watched_stdout() -> Iterator[WatchedOutput]:
    """Watches stdout until the end of the block."""
    stream = sys.stdout
    watched = WatchedOutput(stream)
    sys.stdout = watched
    try:
        yield watched
    finally:
        sys.stdout = stream


def _json_escapes(error: UnicodeError) -> tuple[str, int]:
    """Returns the escapes for the letters that cannot be encoded, and where the text goes on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4)), error.end
