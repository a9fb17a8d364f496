"""One process that draws pictures of large arrays for all visitors, so that the server itself reads no trace."""

from __future__ import annotations

import contextvars
import importlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from workbench.serving.child_processes.separate_process import PICTURE, SeparateProcess

IDLE_SECONDS = 60.0

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Drawing:
    """A `workbench.core.caller.Caller` with one process, which starts with the first call and ends when it is idle.

    Calls may come from any thread. They are made one at a time, in the order in which they come.

    Args:
        gigabytes: the memory that the process may take; 0: no limit.
        idle_seconds: the process ends after this time without a call. The next call starts another one.
    """

    def __init__(self, gigabytes: float = 0.0, idle_seconds: float = IDLE_SECONDS):
        self._gigabytes, self._idle_seconds = gigabytes, idle_seconds
        self._orders: queue.SimpleQueue[Callable[[SeparateProcess], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # held while an order is given, and while the thread decides to end

    def __call__(
        self, function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the function's result; raises what `SeparateProcess` raises."""
        return self._order(function, *args, **kwargs).result()

    def prepare(self, module: str) -> None:
        """Imports a module in the process, for a call that will come soon. Does not wait for it."""
        self._order(_import, module)

    def close(self) -> None:
        """Ends the process, after the calls that were made before."""
        with self._lock:
            thread = self._thread
            if thread is not None:
                self._orders.put(None)
        if thread is not None:
            thread.join()

    def _order(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        context = contextvars.copy_context()  # of the caller, who may cancel the call and receives its progress

        def answer(process: SeparateProcess) -> None:
            try:
                future.set_result(context.run(process, function, *args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            self._orders.put(answer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="drawing", daemon=True)
                self._thread.start()
        return future

    def _work(self) -> None:
        """Answers the calls. The process belongs to this thread, and ends with it."""
        with SeparateProcess(threading.Lock(), self._gigabytes, PICTURE) as process:
            while (answer := self._next()) is not None:
                answer(process)

    def _next(self) -> Callable[[SeparateProcess], None] | None:
        """Returns the next call; None if the process is to end."""
        try:
            found = self._orders.get(timeout=self._idle_seconds)
        except queue.Empty:
            found = None
        if found is None:
            with self._lock:
                if not self._orders.empty():  # a call came at the last moment
                    found = self._orders.get()
                if found is None:
                    self._thread = None
        return found


def _import(module: str) -> None:
    importlib.import_module(module)
