"""The parent's end of a conversion in a separate process; `workbench.conversion.child` is the other end."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import IO, Any

from workbench.core.errors import BadInput, DiskFull, Unavailable, WorkbenchError
from workbench.core.progress import OnProgress
from workbench.families import FAMILIES
from workbench.prepared.kinds import Kind, session_environment
from workbench.prepared.pool import PREPARED, ForkedProcess

MODULE = "workbench.conversion.child"
CHILD = ("-m", MODULE)
BEAT_SECONDS = 0.25  # progress is reported at least this often, so that the caller can stop the work at any time
ENDING_SECONDS = 10.0  # longest wait for the process to clean up after a cancel
ERRORS = {error.__name__: error for error in (BadInput, DiskFull, Unavailable, WorkbenchError)}

Process = subprocess.Popen[bytes] | ForkedProcess
Started = tuple[Process, IO[bytes], Callable[[], object]]
"""A process, what it writes, and what closes its input."""


def run_child(arguments: dict[str, Any], name: str, on_progress: OnProgress | None = None) -> dict[str, Any]:
    """Runs a conversion and returns its results (see `workbench.conversion.child`).

    Args:
        arguments: the child's arguments.
        name: the model's name, for messages.
        on_progress: if it raises, the process is ended.

    Raises the child's own `BadInput` or `Unavailable`, and `WorkbenchError` if it failed or died.
    """
    with tempfile.TemporaryFile() as errors, _process(arguments, name, errors) as (process, output):
        last: dict[str, Any] = {"fraction": 0.0, "sentence": f"preparing {name}"}
        result: dict[str, Any] = {}
        for line in chain([b""], _lines(output)):  # first at once: a quick process may end within a beat
            message = json.loads(line) if line else last
            if "fraction" in message:
                last = message
                if on_progress is not None:
                    on_progress(float(message["fraction"]), str(message["sentence"]))
            else:
                result = message
        status = process.wait()
        if "error" in result:
            raise ERRORS[result["error"]](_sentence(result, name))
        if "outside" not in result:
            raise WorkbenchError(f"the conversion of {name} ended without a result{_reason(status, errors)}")
        return result


def _sentence(result: dict[str, Any], name: str) -> str:
    if result["error"] == WorkbenchError.__name__:
        return f"the conversion of {name} failed: {result['sentence']}"
    return str(result["sentence"])


def _reason(status: int, errors: IO[bytes]) -> str:
    """Returns why it may have ended: a signal, or the last line that it printed."""
    if status < 0:
        memory = ", perhaps because memory ran out" if status == -9 else ""
        return f": the system ended it with signal {-status}{memory}"
    errors.seek(0)
    printed = errors.read().decode("utf-8", "replace").split("\n")
    lines = [line.strip() for line in printed if line.strip()]
    return f": {lines[-1][:200]}" if lines else f" (exit status {status})"


@contextlib.contextmanager
def _process(arguments: dict[str, Any], name: str, errors: IO[bytes]) -> Iterator[tuple[Process, IO[bytes]]]:
    """Yields the process and what it writes. It ends with the block: its input closes, and it removes its unfinished
    file.
    """
    environment = session_environment(parallel=False)
    try:
        process, output, hang_up = _forked(arguments, environment, errors) or _started(arguments, environment, errors)
    except OSError as error:
        raise WorkbenchError(f"the conversion of {name} cannot start: {error}") from error
    try:
        yield process, output
    finally:
        with contextlib.suppress(OSError):
            hang_up()
        output.close()
        try:
            process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _started(arguments: dict[str, Any], environment: dict[str, str], errors: IO[bytes]) -> Started:
    process = subprocess.Popen(
        [sys.executable, *CHILD, json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
        start_new_session=True,  # Ctrl-C in a shell stops the caller, which then ends the process
    )
    assert process.stdin is not None and process.stdout is not None
    return process, process.stdout, process.stdin.close


def _forked(arguments: dict[str, Any], environment: dict[str, str], errors: IO[bytes]) -> Started | None:
    """Forks the process from a prepared process that has imported torch; returns None if there is none."""
    family = FAMILIES.get(arguments.get("family", ""))
    if CHILD != ("-m", MODULE) or family is None or family.package:
        return None
    kinds = (Kind("pytorch", language) for language in (family.has_language_model, not family.has_language_model))
    kind = next(filter(PREPARED.is_ready, kinds), None)  # what the other one has not imported, the child imports
    if kind is None:
        return None
    parent_socket, child_socket = socket.socketpair()
    with child_socket:
        process = PREPARED.fork(
            kind, [json.dumps(arguments)], environment, child_socket.fileno(), MODULE, errors.fileno()
        )
    output = parent_socket.makefile("rb")
    parent_socket.close()  # the file keeps it open
    if process is None:
        output.close()
        return None
    return process, output, partial(parent_socket.shutdown, socket.SHUT_WR)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yields the lines of a stream as they come, and an empty line after some time without one."""
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        beat = time.monotonic()
        while True:
            if selector.select(max(beat + BEAT_SECONDS - time.monotonic(), 0.0)):
                content = os.read(stream.fileno(), 1 << 16)
                if not content:
                    return
                *lines, buffer = (buffer + content).split(b"\n")
                yield from (line for line in lines if line)
            else:
                yield b""
            beat = time.monotonic()
