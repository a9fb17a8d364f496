"""The child's end of a session in a process of its own: loads one model and serves calls until the parent hangs up.

`workbench.worker` is the other end. Values travel as pickles over a private socket pair between two processes of the
same program. This file knows no model: `workbench.opening` loads it.

To the child go ("open", spec), then ("cancel", number), and ("call", number) with the pickle of (method, arguments,
options) behind it. From it come ("opened", 0, load seconds), then per call ("taken", number, None), any count of
("event", number, value), and ("done", number, value) or ("error", number, (class, sentence, notes)).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from multiprocessing.connection import Connection
from typing import Any

from workbench.errors import BadInput, Cancelled, SessionDied, Unavailable, WorkbenchError
from workbench.opening import open_here
from workbench.runtimes import RUNTIMES
from workbench.session import Session

CANCEL_SECONDS = 5.0  # a cancelled call that has given no sign of life for so long is ended with the process
ERRORS = (BadInput, Unavailable, SessionDied, Cancelled, WorkbenchError)


class _Server:
    """Runs calls in the main thread while another thread listens, so that a call can be cancelled."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.calls: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self.cancelled = 0  # calls up to this number are to stop
        self.working = 0  # the number of the call at work, 0 between calls

    def run(self) -> None:
        """Loads the model, then serves calls until the parent hangs up."""
        _, spec = self.connection.recv()
        threading.Thread(target=self.listen, daemon=True).start()
        try:
            with _without_torch() if _is_light(spec.runtime) else contextlib.nullcontext():
                session = open_here(spec)
        except Exception as error:
            self.answer("error", 0, _portable(error, f"{spec.name} on {spec.runtime} could not be loaded"))
            return
        self.answer("opened", 0, session.load_seconds)
        while True:
            number, payload = self.calls.get()
            self.working = number
            try:
                self.serve(session, number, payload)
            except Exception as error:
                self.answer("error", number, _portable(error, f"{spec.name} on {spec.runtime} failed"))
            self.working = 0

    def listen(self) -> None:
        """Takes messages until the parent hangs up, then ends the process at once, whatever it is doing."""
        while True:
            try:
                kind, number = self.connection.recv()
                payload = self.connection.recv_bytes() if kind == "call" else b""
            except (EOFError, OSError):
                os._exit(0)
            if kind == "call":
                self.calls.put((number, payload))
            else:
                self.cancelled = max(self.cancelled, number)
                impatience = threading.Timer(CANCEL_SECONDS, self.end_if_at_work, (number,))
                impatience.daemon = True
                impatience.start()

    def end_if_at_work(self, number: int) -> None:
        """Ends the process if the call is still running: one long step would keep the next call waiting."""
        if 0 < self.working <= number:
            os._exit(1)

    def serve(self, session: Session, number: int, payload: bytes) -> None:
        """Runs one call and sends what it gives."""
        self.answer("taken", number, None)
        try:
            method, arguments, options = pickle.loads(payload)  # noqa: S301 (from the process that started this one)
        except Exception as error:
            raise BadInput(f"an argument cannot be understood in the session's process: {error}") from error
        self.stop_if_cancelled(number)
        result = getattr(session, method)(*arguments, **options)
        if not isinstance(result, Iterator):
            self.answer("done", number, result)
            return
        with contextlib.closing(result) if isinstance(result, Generator) else contextlib.nullcontext():
            for event in result:
                self.stop_if_cancelled(number)
                self.answer("event", number, event)
        self.answer("done", number, None)

    def stop_if_cancelled(self, number: int) -> None:
        """Raises `Cancelled` where the caller wants no more of the call."""
        if number <= self.cancelled:
            raise Cancelled("the call was stopped")

    def answer(self, kind: str, number: int, value: Any) -> None:
        """Sends one message; the parent may be gone, then so are we."""
        message = pickle.dumps((kind, number, value), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            self.connection.send_bytes(message)
        except OSError:
            os._exit(0)


def _is_light(runtime: str) -> bool:
    """Whether sessions of the runtime load without torch."""
    return runtime in RUNTIMES and RUNTIMES[runtime].opens_gguf


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Hides torch meanwhile: transformers would import it for a tokenizer alone, which takes seconds and 350 MB.

    For the rest of the process transformers then has tokenizers only; who needs torch itself can still import it.
    """
    if "torch" in sys.modules:
        yield
        return
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would say so on stderr
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


def _portable(error: Exception, doing: str) -> tuple[type[WorkbenchError], str, str]:
    """Class, sentence and notes of an error, all of which can be pickled whatever the error holds.

    One of ours keeps its sentence; any other is named, and its traceback becomes the note.
    """
    if isinstance(error, WorkbenchError):
        return next(kind for kind in ERRORS if isinstance(error, kind)), str(error), ""
    notes = "".join(traceback.format_exception(error))
    if isinstance(error, MemoryError):
        return WorkbenchError, f"{doing}: there is not enough memory", notes
    text = " ".join(str(error).split()) or "no message"
    return WorkbenchError, f"{doing}: {type(error).__name__}: {text}", notes


def main() -> None:
    """Entry of the child process; the first argument is the number of the inherited socket."""
    with contextlib.suppress(EOFError):
        _Server(Connection(int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
