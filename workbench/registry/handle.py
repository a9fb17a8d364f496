"""An open session as one holder sees it: calls go to the process that all holders share, results name what made them.

The registry makes these. This file neither opens sessions nor ends processes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from workbench.core.errors import BadInput
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SessionSpec
from workbench.core.visitors import Work, working
from workbench.families import FAMILIES
from workbench.isolation.base import Calls, IsolatedSession
from workbench.registry.budget import weight_bytes
from workbench.registry.signatures import session_class
from workbench.session.calls import CALLS, Call, call_of, with_calls
from workbench.session.conversation import Answer, AnswerStart
from workbench.session.protocols import Capabilities, Session
from workbench.session.values import CONVERSATION, AudioSource, Generation, Prompt, Transcript
from workbench.text.prompts import check_prompt, messages_of
from workbench.trace.steps import Follow
from workbench.trace.trace import OutputPath, StageSource, Trace

Passed = TypeVar("Passed")
Resolve = Callable[[dict[str, Any]], dict[str, Any]]
Release = Callable[[SessionSpec], None]
# Entered around each call of a session that is shared by visitors: with what is opened, whether one call at a time has
# it, the options and the input. It waits for the call's turn, or raises.
Admission = Callable[[SessionSpec, bool, Mapping[str, Any], Sequence[Any]], contextlib.AbstractContextManager[Work]]
_END = object()


@with_calls
class OpenSession(Capabilities):
    """A holder's view of a session; closing the last one ends its process.

    It has the calls of all models. A call that this model lacks raises `BadInput`, which says what to open instead.

    Args:
        spec: what was opened.
        session: in a process of its own, shared by all holders; or in this process, for this holder alone.
        resolved: converts the options of a call to those that the session takes.
        release: called when this holder has closed a session in a process of its own.
    """

    def __init__(self, spec: SessionSpec, session: Session, resolved: Resolve, release: Release):
        self.model = spec.name
        self.runtime = spec.runtime
        self._resolved = resolved
        self._release = release
        self._closing = threading.Lock()
        self._spec = spec
        self.admission: Admission | None = None
        self._session: Session | None = session
        self._calls: Session | Calls = session.slot() if isinstance(session, IsolatedSession) else session

    @property
    def session(self) -> Session:
        """The session; raises `BadInput` after `close`."""
        if self._session is None:
            raise BadInput(f"the session of {self.model} is closed; open it again")
        return self._session

    @property
    def reads_text(self) -> bool:
        """Whether the model reads a text that its calls take; for other models, a text is the path of a recording."""
        return FAMILIES[self._spec.family].reads_text

    @property
    def quantization(self) -> str | None:
        """The quantisation of the weights; None without a GGUF file."""
        return quantization_of(self._spec)

    @property
    def weight_bytes(self) -> int:
        """The size of the weight files in bytes."""
        return weight_bytes(self._spec)

    @property
    def load_seconds(self) -> float:
        """The seconds that the model took to load, including the start of its process."""
        return self.session.load_seconds

    @property
    def log(self) -> Path | None:
        """The path of the engine's log; None without an engine."""
        return self.session.log

    @property
    def occupied(self) -> bool:
        """Whether a call would have to wait for another holder's call or load."""
        return isinstance(self.session, IsolatedSession) and self.session.occupied

    @property
    def pid(self) -> int | None:
        """The id of the model's process; None while the model is unloaded, or if it is in this process."""
        return getattr(self.session, "pid", None)

    @property
    def memory_bytes(self) -> int | None:
        """The bytes that the model's process has resident now; None if the model is in this process."""
        return self.session.memory_bytes if isinstance(self.session, IsolatedSession) else None

    def trace(
        self,
        source: AudioSource | Prompt,
        stages: str = "*",
        given: StageSource = None,
        out: OutputPath = None,
        *,
        steps: str = "",
        follow: Follow = None,
        **options: Any,
    ) -> Trace:
        """As `Traces.trace`, but checks a text for a language model before it is sent.

        For a model that answers speech, a recording becomes a message of the user.
        """
        self.session  # noqa: B018 (raises when this holder has closed it)
        if FAMILIES[self._spec.family].input == CONVERSATION:
            source = messages_of(source)
        elif self.reads_text:
            check_prompt(source, self.model)
        all_options = options if not steps and follow is None else {**options, "steps": steps, "follow": follow}
        trace: Trace = self._make_call(CALLS["trace"], (source, stages, given, out), all_options)
        return trace

    def _make_call(self, call: Call, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Makes a call. Raises `BadInput` if the model lacks this call."""
        session = self.session
        if self.admission is None:
            result = call_of(self._calls, call.name)(*arguments, **self._resolved(options))
            return self._with_origins(session, result) if call.streams else result
        takes_one_call = isinstance(session, IsolatedSession) and not RUNTIMES[self.runtime].parallel
        admitted = self.admission(self._spec, takes_one_call, options, arguments[:1])
        if call.streams:
            return self._with_origins(session, self._admitted_events(admitted, call, arguments, options))
        with admitted as work, working(work):
            return call_of(self._calls, call.name)(*arguments, **self._resolved(options))

    def _admitted_events(
        self,
        admitted: contextlib.AbstractContextManager[Work],
        call: Call,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Generator[Any, None, None]:
        """Yields the events of a stream that needs admission; each is computed within it."""
        with admitted as work:
            with working(work):
                events = call_of(self._calls, call.name)(*arguments, **self._resolved(options))
            with contextlib.closing(events):
                while True:
                    with working(work):  # the reader of the stream may do other work in between
                        event = next(events, _END)
                    if event is _END:
                        return
                    yield event

    def _with_origins(self, session: Session, events: Generator[Passed, None, None]) -> Generator[Passed, None, None]:
        """Yields the events; adds the session's load time (process included) and quantisation to the results."""
        with contextlib.closing(events):
            for event in events:
                yield self._with_origin(session, event)

    def _with_origin(self, session: Session, event: Any) -> Any:
        if isinstance(event, tuple):  # of a batch
            return event[0], self._with_origin(session, event[1])
        if isinstance(event, (Transcript, Generation, Answer, AnswerStart)):
            return replace(event, load_seconds=session.load_seconds, quantization=self.quantization)
        return event

    def cancel(self) -> None:
        """Stops the call that runs in the session's process; if several may run at once, only this holder's."""
        if self._session is not None and isinstance(self._calls, Calls):
            self._calls.cancel()

    def close(self) -> None:
        """Closes the session for this holder. May be called again."""
        with self._closing:
            session, self._session = self._session, None
        if isinstance(session, IsolatedSession):
            self._release(self._spec)
        elif session is not None:
            session.close()

    def __repr__(self) -> str:
        runtime = " ".join(filter(None, (self.runtime, self.quantization)))
        session = self._session
        state = "closed" if session is None else session.state if isinstance(session, IsolatedSession) else "loaded"
        return f"<session of {self.model} on {runtime}: {state}>"

    def __enter__(self) -> OpenSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened(spec: SessionSpec, session: Session, resolved: Resolve, release: Release) -> OpenSession:
    """Returns an `OpenSession` whose calls show the options of the model's family in their signatures and help."""
    kind: type[OpenSession] = session_class(OpenSession, spec.family)
    return kind(spec, session, resolved, release)


def quantization_of(spec: SessionSpec) -> str | None:
    """Returns the quantisation of a session's weights; None without a GGUF file."""
    return spec.settings.quantization if RUNTIMES[spec.runtime].opens_gguf else None
