"""The process that calls functions for a server; `workbench.serving.child_processes.separate_process` starts it.

Its arguments are the number of a socket, the id of the process that started it, and the bytes of memory that it may
take (0: no limit). On the socket it gets pickled `(function, args, kwargs)`, and answers each with messages of a kind
and a value: `REPORT`, any number of times, with a fraction and an activity; at last `RESULT`, `ERROR` with a
`WorkbenchError`, `NO_MEMORY`, or `FAILED` with a sentence. It ends when the socket closes.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from workbench.core.errors import WorkbenchError, named_message_of
from workbench.core.progress import listening
from workbench.system.forks import end_with
from workbench.system.memory import is_lack_of_memory, limit_data, take_buffers

REPORT, RESULT, ERROR, NO_MEMORY, FAILED = "report", "result", "error", "no memory", "failed"


def main() -> None:
    """Answers calls until the socket closes."""
    number, parent, limit = map(int, sys.argv[1:])
    if sys.platform == "linux":
        end_with(parent)
    connection = Connection(number)
    if limit:
        take_buffers()
        limit_data(os.getpid(), limit)
    try:
        while True:
            connection.send(_answer(connection, connection.recv_bytes()))
    except (EOFError, ConnectionError):  # the reader is gone
        return


def _answer(connection: Connection, payload: bytes) -> tuple[str, Any]:
    """Returns the last message of a call."""
    try:
        function, args, kwargs = pickle.loads(payload)  # noqa: S301 (from the process that started this one)
        with listening(lambda share, activity: connection.send((REPORT, (share, activity)))):
            return RESULT, function(*args, **kwargs)
    except ConnectionError:
        raise
    except WorkbenchError as error:
        return ERROR, error
    except Exception as error:
        if is_lack_of_memory(error):
            return NO_MEMORY, None
        traceback.print_exc()
        return FAILED, named_message_of(error)


if __name__ == "__main__":
    main()
