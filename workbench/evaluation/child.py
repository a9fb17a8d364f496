"""The child's end of a worker in a process of its own: it opens a model, and answers batches until the driver hangs up.

The other end is `workbench.evaluation.local`. The driver sends ("open", job, name), then ("batch", number, utterances).
The child answers ("opened", 0, seconds), then for each batch ("result", number, result) for each utterance and ("done",
number, None). It may also answer ("failed", 0, (class, sentence)), and then the process ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from workbench.core.errors import BadInput, DiskFull, SessionDied, Unavailable, WorkbenchError, named_message_of
from workbench.evaluation.worker import Worker
from workbench.system.forks import allow_forks
from workbench.system.process_groups import end_others

ERRORS = (BadInput, DiskFull, Unavailable, SessionDied, WorkbenchError)


def portable(error: BaseException) -> tuple[type[WorkbenchError], str]:
    """Returns the class and the sentence of an error. They can be pickled, whatever the error holds."""
    if isinstance(error, WorkbenchError):
        return next(kind for kind in ERRORS if isinstance(error, kind)), str(error)
    return WorkbenchError, named_message_of(error)[:500]


def serve(socket: int) -> None:
    """Serves one worker until the driver hangs up; `socket` is the number of the inherited socket."""
    connection = Connection(socket)
    allow_forks(connection.close)  # otherwise the driver would not notice the end of this process
    try:
        _, job, name = connection.recv()
    except EOFError:
        return
    waiting: queue.SimpleQueue[tuple[str, int, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, waiting), daemon=True).start()
    try:
        start_time = time.perf_counter()
        worker = Worker(job, name)
        _answer(connection, "opened", 0, time.perf_counter() - start_time)
        while True:
            _, number, utterances = waiting.get()
            for result in worker.results(utterances):
                _answer(connection, "result", number, result)
            _answer(connection, "done", number, None)
    except Exception as error:
        _answer(connection, "failed", 0, portable(error))
    _end()


def _listen(connection: Connection, waiting: queue.SimpleQueue[tuple[str, int, Any]]) -> None:
    """Takes batches until the driver hangs up, then ends, at once."""
    while True:
        try:
            waiting.put(connection.recv())
        except (EOFError, OSError):
            _end()


def _answer(connection: Connection, *message: Any) -> None:
    try:
        connection.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
    except OSError:  # the driver is gone
        _end()


def _end() -> None:
    """Ends this process and all that it has started."""
    if os.getpgrp() == os.getpid():  # a group of its own, which the driver has made
        with contextlib.suppress(Exception):
            end_others(os.getpid())
    os._exit(0)


def main() -> None:
    """Entry of the child process; the first argument is the number of the inherited socket."""
    serve(int(sys.argv[1]))


if __name__ == "__main__":
    main()
