"""What sessions in processes of their own have in common: what the registry asks of them, and how calls are worded.

`workbench.isolation.serial` has those that take one call at a time, `workbench.isolation.concurrent` the others.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from workbench.core.errors import BadInput, Cancelled, SessionDied, WorkbenchError
from workbench.core.settings import SessionSpec
from workbench.embeddings.prompt import Injected, embeddings_given
from workbench.families import FAMILIES
from workbench.session.protocols import Session, recordings
from workbench.session.values import AudioSource, Event, Generation, Neighbours, Piece, Prompt
from workbench.system.memory import resident_bytes
from workbench.trace.trace import Given, Out, Trace
from workbench.trace.write import discard_partial, trace_place

BEAT_SECONDS = 0.25  # whoever waits for a load is told how far it is after so long, and can stop it then
WAITING = "waiting for another run of this model"
DOING = {
    "stream": "transcribing",
    "stream_batch": "transcribing",
    "generate_stream": "generating",
    "trace": "tracing",
    "neighbours": "looking up tokens",
}


class Calls(Session):
    """The calls of a session, each as a message to its process."""

    spec: SessionSpec

    @abstractmethod
    def _replies(self, method: str, payload: bytes) -> Generator[Any, None, None]:
        """Makes a call: gives its events, or its only result."""

    @abstractmethod
    def cancel(self) -> None:
        """Stops what is running, from any thread; it raises `Cancelled`. Nothing happens where nothing runs."""

    def stream(self, audio: AudioSource, **options: Any) -> Generator[Event, None, None]:
        """As `Session.stream`; closing the iterator stops the work in the child."""
        return self._call("stream", (_plain(audio),), options)

    def stream_batch(
        self, audios: Sequence[AudioSource], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """As `Session.stream_batch`; closing the iterator stops the work in the child."""
        return self._call("stream_batch", ([_plain(audio) for audio in recordings(audios)],), options)

    def generate_stream(
        self, prompt: Prompt, *, embeddings: Sequence[Injected] = (), **options: Any
    ) -> Generator[Piece | Generation, None, None]:
        """As `Session.generate_stream`; closing the iterator stops the work in the child."""
        return self._call("generate_stream", (prompt,), options | _read(embeddings))

    def trace(self, source: Any, stages: str = "*", given: Given = None, out: Out = None, **options: Any) -> Trace:
        """As `Session.trace`; where a file is written, only its path comes from the process."""
        family = FAMILIES.get(self.spec.family)
        plain = source if family and family.reads_text else _plain(source)
        other = str(Path(given).absolute()) if isinstance(given, (str, Path)) else given
        place = None if out is None else trace_place(out)
        options |= _read(options.pop("embeddings", ()))
        try:
            [trace] = self._call("trace", (plain, stages, other, place), options)
        except BaseException:
            if place is not None:
                discard_partial(place)  # the process may have been ended while it wrote
            raise
        found: Trace = trace
        return found

    def neighbours(self, values: np.ndarray, count: int = 5) -> Neighbours:
        """As `Session.neighbours`."""
        [found] = self._call("neighbours", (values, count), {})
        return found

    def _call(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Generator[Any, None, None]:
        try:
            payload = pickle.dumps((method, arguments, options), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise BadInput(f"the recording or an option cannot be sent to the session's process: {error}") from error
        return self._replies(method, payload)


class IsolatedSession(Calls):
    """A session whose model lives in a child process.

    The process starts with the first call or with `start`, and ends with `unload`, after which the next call starts it
    again, or with `close`. Every method may be called from any thread. Whoever waits for the model to load is told how
    far that is if they listen (`workbench.core.progress.listening`); what it raises ends the wait, and the load
    where nobody else waits for it.

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
        self._admitted = admitted
        self._closed = False

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The child's process id, or None while there is none."""

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
        """What it is doing, in words: loading, at work, idle or unloaded."""
        return "loading" if self.loading else "at work" if self.busy else "idle" if self.pid else "unloaded"

    @property
    def memory_bytes(self) -> int:
        """What the child and the processes that it has started have resident now."""
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
        """Takes note of a load that has ended well."""
        self.load_seconds = seconds
        self.log = Path(known["log"]) if known.get("log") else None

    def _check_open(self) -> None:
        if self._closed:
            raise BadInput(f"the session of {self.model} is closed; open it again")

    def _death(self, how: str, doing: str) -> SessionDied:
        """What to raise where the child has ended in the middle of something."""
        if self._closed:
            return SessionDied(f"the session of {self.model} on {self.runtime} was closed while {doing}")
        return SessionDied(
            f"the process of {self.model} on {self.runtime} {how} while {doing}; the next call starts a new one"
        )

    def _stopped(self, doing: str) -> Cancelled:
        """What to raise where somebody has stopped a call."""
        return Cancelled(f"{doing} with {self.model} was stopped")


def revived(kind: type[WorkbenchError], sentence: str, notes: str) -> WorkbenchError:
    """An error of the child's, as it is raised here."""
    error = kind(sentence)
    if notes:
        error.add_note(f"In the session's process:\n{notes}")
    return error


def _read(embeddings: Sequence[Injected]) -> dict[str, Any]:
    """The option with embeddings, none where there are none. Files of users are read here, as arrays they go on."""
    given = embeddings_given(embeddings)
    return {"embeddings": given} if given else {}


def _plain(audio: AudioSource) -> AudioSource:
    """Paths made absolute and strings, since the child may have another working folder."""
    return str(Path(audio).absolute()) if isinstance(audio, (str, Path)) else audio
