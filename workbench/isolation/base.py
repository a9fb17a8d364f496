"""The common part of sessions in processes: the methods that the registry uses, and the sending of calls.

`workbench.isolation.serial` has sessions that take one call at a time, `workbench.isolation.concurrent` the others.
`workbench.session.calls` lists the calls.
"""

from __future__ import annotations

import contextlib
import inspect
import pickle
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from workbench.core.errors import BadInput, Cancelled, SessionDied, WorkbenchError
from workbench.core.settings import SessionSpec
from workbench.families import FAMILIES
from workbench.session.calls import Call, with_calls
from workbench.session.values import RECORDING
from workbench.system.memory import resident_bytes

BEAT_SECONDS = 0.25  # how often a caller that waits for a load receives its progress, and can stop it
WAITING = "waiting for another run of this model"


@with_calls
class Calls:
    """Sends every call of the table of calls as a message to the session's process.

    The process refuses a call that its model does not have, in one sentence.
    """

    spec: SessionSpec
    model: str
    runtime: str
    load_seconds: float
    log: Path | None = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Returns a call by name, for type checkers; `workbench.session.protocols` has the types."""

    @abstractmethod
    def _replies(self, call: Call, payload: bytes) -> Generator[Any, None, None]:
        """Makes a call; yields its events, or its only result."""

    @abstractmethod
    def cancel(self) -> None:
        """Stops the running call, which raises `Cancelled`.

        Any thread may call this. Without a running call nothing happens.
        """

    def _make_call(self, call: Call, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """Makes a call; returns its result, or its stream. Closing the stream stops the work."""
        family = FAMILIES.get(self.spec.family)
        ready = call.prepared(arguments, options, family.input if family else RECORDING)
        try:
            message = (call.name, ready.args[1:], ready.kwargs)
            payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise BadInput(f"the recording or an option cannot be sent to the session's process: {error}") from error
        replies = self._replies(call, payload)
        return replies if call.streams else _result(call, ready, replies)


def _result(call: Call, ready: inspect.BoundArguments, replies: Iterable[Any]) -> Any:
    """Returns the only reply to a call, or None without a reply."""
    try:
        results = list(replies)
    except BaseException:
        call.clean_up(ready)
        raise
    return results[0] if results else None


class IsolatedSession(Calls):
    """A session whose model lives in a child process.

    The process starts with the first call or with `start`. It ends with `close` or with `unload`; after `unload`, the
    next call starts it again. Every method may be called from any thread. A caller that waits for the load receives its
    progress if it listens (`workbench.core.progress.listening`). If the listener raises, the wait ends; the load ends
    too if no other caller waits for it.

    Args:
        spec: what to open.
        admitted: entered around each start of the process; may refuse by raising.
    """

    def __init__(
        self,
        spec: SessionSpec,
        admitted: Callable[[IsolatedSession], contextlib.AbstractContextManager[None]] | None = None,
    ):
        self.spec = spec
        self.model = spec.name
        self.runtime = spec.runtime
        self.load_seconds = 0.0  # of the process that runs now, its start included
        self.log: Path | None = None  # of what the model's engine does, where it keeps one
        self.last_used = time.monotonic()
        self.allowance_bytes: int | None = None  # memory that its process may take beyond what it has when it is loaded
        self._admitted = admitted
        self._closed = False

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The child's process id, or None while there is none."""

    @property
    def loaded(self) -> bool:
        """Whether the model is loaded or being loaded."""
        return self.pid is not None

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a call is running or the model is being loaded."""

    @property
    @abstractmethod
    def occupied(self) -> bool:
        """Whether a call would have to wait for another one, or for a load that another one asked for."""

    @property
    @abstractmethod
    def loading(self) -> bool:
        """Whether the model is being loaded."""

    @property
    def state(self) -> str:
        """The state in words: loading, at work, idle or unloaded."""
        return "loading" if self.loading else "at work" if self.busy else "idle" if self.loaded else "unloaded"

    @property
    def memory_bytes(self) -> int:
        """The resident memory of the child and of the processes that it has started, in bytes."""
        pid = self.pid
        return resident_bytes(pid) if pid else 0

    @abstractmethod
    def start(self) -> None:
        """Starts the process and loads the model, if that has not been done. Raises what loading raises."""

    @abstractmethod
    def unload(self) -> bool:
        """Ends the process unless a call is running; returns whether it did. The next call loads the model again."""

    @abstractmethod
    def slot(self) -> Calls:
        """The calls of one of several users of the session."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self, known: Mapping[str, Any], seconds: float) -> None:
        """Records a successful load."""
        self.load_seconds = seconds
        self.log = Path(known["log"]) if known.get("log") else None

    def _check_open(self) -> None:
        if self._closed:
            raise BadInput(f"the session of {self.model} is closed; open it again")

    def _died_error(self, ending: str, doing: str) -> SessionDied:
        """Returns the error to raise if the child has ended during a call or a load."""
        if self._closed:
            return SessionDied(f"the session of {self.model} on {self.runtime} was closed while {doing}")
        return SessionDied(
            f"the process of {self.model} on {self.runtime} {ending} while {doing}; the next call starts a new one"
        )

    def _cancelled_error(self, doing: str) -> Cancelled:
        """Returns the error to raise if somebody has stopped a call."""
        return Cancelled(f"{doing} with {self.model} was stopped")


def restored_error(kind: type[WorkbenchError], sentence: str, notes: str) -> WorkbenchError:
    """Returns the child's error as an error to raise in this process."""
    error = kind(sentence)
    if notes:
        error.add_note(f"In the session's process:\n{notes}")
    return error
