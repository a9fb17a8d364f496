"""The registry: models by name, sessions by model and runtime, within a budget of memory.

It opens sessions in processes of their own; `workbench.budget` ends the one least recently used when the next would not
fit. It loads no model itself.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from workbench.budget import MemoryBudget, default_budget
from workbench.cards import SHIPPED, Card, read_cards, user_cards_path
from workbench.errors import BadInput, Unavailable
from workbench.families import FAMILIES, family_of
from workbench.opening import DTYPES, SessionSpec, Settings, open_here, why_not
from workbench.session import (
    AudioSource,
    Event,
    Generation,
    Piece,
    Prompt,
    Session,
    Trace,
    Transcript,
    last_generation,
    last_transcript,
    last_transcripts,
)
from workbench.sources import OnProgress, fetch, why_not_here
from workbench.voice_activity import BUILT_IN
from workbench.worker import ProcessSession


@dataclass(frozen=True)
class Availability:
    """Whether a model can run on a runtime right now, and if not, why and how to get there."""

    ready: bool
    reason: str | None = None
    fetches: bool = False  # not ready, but opening it downloads what is missing


@dataclass(frozen=True)
class Residency:
    """An open session as the user sees it."""

    model: str
    runtime: str
    memory_bytes: int  # 0 while it is unloaded
    busy: bool
    idle_seconds: float


class Registry:
    """Cards and sessions.

    Args:
        memory_bytes: what all sessions together may have resident; by default $WORKBENCH_MEMORY_GB or four fifths of
            the machine.
        isolate: run each session in a process of its own. Without it, models load into this process.
    """

    def __init__(self, memory_bytes: int | None = None, isolate: bool = True):
        self.memory_budget = memory_bytes or default_budget()
        self.isolate = isolate
        self._budget = MemoryBudget(self.memory_budget, self._sessions)
        self._lock = threading.RLock()
        self._processes: dict[SessionSpec, ProcessSession] = {}
        self._holders: dict[SessionSpec, int] = {}
        self._here: weakref.WeakSet[Session] = weakref.WeakSet()  # sessions in this process
        self._closed = False

    # Models.

    def cards(self) -> list[Card]:
        """All cards: the shipped ones, then the user's own. Raises `BadInput` for a user file that cannot be read."""
        cards = read_cards(SHIPPED)
        mine = user_cards_path()
        if os.environ.get("WORKBENCH_MODELS") and not mine.is_file():
            raise BadInput(f"WORKBENCH_MODELS names {mine}, and there is no such file")
        if mine.is_file():
            own = read_cards(mine)
            cards = [card for card in cards if card.id not in {other.id for other in own}] + own
        return cards

    def card(self, model: str | Path) -> Card:
        """The card of an id, or one made for a checkpoint directory; raises `BadInput` that suggests the nearest id."""
        cards = {card.id: card for card in self.cards()}
        if str(model) in cards:
            return cards[str(model)]
        path, is_directory = _on_disk(model)
        if is_directory:
            family = family_of(path.resolve())
            source = {"directory": str(path.resolve())}
            return Card(str(model), path.resolve().name, family.name, source, tasks=family.tasks)
        if os.path.isfile(path):  # noqa: PTH113 (never raises)
            raise BadInput(f"{path.name} is a file; expected a model id or a checkpoint directory")
        near = difflib.get_close_matches(str(model), cards, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(cards)}."
        raise BadInput(f"there is no model {str(model)!r} and no such directory; {hint}")

    def availability(self, card: Card, runtime: str) -> Availability:
        """Whether the card's model can run on that runtime."""
        reason = _unknown_family(card) or card.runtimes.get(runtime) or why_not(card.family, runtime)
        if reason:
            return Availability(False, reason)
        missing = why_not_here(card)
        return Availability(missing is None, missing, fetches="hub" in card.source and missing is not None)

    def options_class(self, model: str | Path) -> type[Any]:
        """The dataclass of the model's options; raises `BadInput` for an unknown model or family."""
        card = self.card(model)
        if unknown := _unknown_family(card):
            raise BadInput(f"{card.id} cannot be used: {unknown}")
        return FAMILIES[card.family].options_class

    # Sessions.

    def open(
        self,
        model: str | Path,
        runtime: str = "pytorch",
        threads: int | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        on_progress: OnProgress | None = None,
    ) -> OpenSession:
        """A session of a model on a runtime; downloads the checkpoint first where the card says from where.

        Sessions of the same model, runtime and settings share one process. Raises `BadInput` for an unknown model or a
        bad checkpoint, `Unavailable` where the runtime or the source is not there or memory does not suffice.
        """
        self._check_open()
        spec = self._spec(self.card(model), runtime, Settings(threads, device, dtype), on_progress)
        if not self.isolate:
            here = open_here(spec)
            self._here.add(here)
            return OpenSession(self, spec, here)
        with self._lock:
            self._check_open()
            process = self._processes.setdefault(spec, ProcessSession(spec, self._budget.admitted))
            self._holders[spec] = self._holders.get(spec, 0) + 1
        try:
            process.start()
        except BaseException:
            self._release(spec)
            raise
        return OpenSession(self, spec, process)

    def residents(self) -> list[Residency]:
        """The sessions that are open, loaded or not, in the order they were opened."""
        now = time.monotonic()
        return [
            Residency(p.model, p.runtime, p.memory_bytes, p.busy, 0.0 if p.busy else max(now - p.last_used, 0.0))
            for p in self._sessions()
        ]

    def unload_idle(self, seconds: float) -> list[Residency]:
        """Ends the processes that no call has used for that long; returns what was unloaded."""
        unloaded = []
        for process in self._sessions():
            idle = time.monotonic() - process.last_used
            if process.pid and idle >= seconds:
                memory = process.memory_bytes
                if process.unload():
                    unloaded.append(Residency(process.model, process.runtime, memory, False, idle))
        return unloaded

    def unload(self, model: str, runtime: str) -> bool:
        """Ends the processes of a model on a runtime, of which the next call loads it again.

        Returns whether none of them was at work; those that were stay.
        """
        ended = [p.unload() for p in self._sessions() if (p.model, p.runtime) == (model, runtime)]
        return all(ended)

    def close(self) -> None:
        """Ends every session for good. May be called again."""
        with self._lock:
            self._closed = True
            sessions = [*self._processes.values(), *self._here]
            self._processes.clear()
            self._holders.clear()
        for session in sessions:
            session.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options with a voice activity model's id made the directory of its checkpoint."""
        vad = options.get("vad")
        if not isinstance(vad, (str, Path)) or vad in BUILT_IN:
            return options
        expected = f"{', '.join(BUILT_IN)}, or the id or directory of an FSMN-VAD"
        if not _on_disk(vad)[1] and str(vad) not in {card.id for card in self.cards()}:
            raise BadInput(f"option vad is {str(vad)!r}; expected {expected}")
        card = self.card(vad)
        if card.family != "fsmn_vad":
            raise BadInput(f"option vad is {str(vad)!r}, a model of the family {card.family}; expected {expected}")
        return {**options, "vad": str(fetch(card))}

    def _spec(self, card: Card, runtime: str, settings: Settings, on_progress: OnProgress | None) -> SessionSpec:
        if unknown := _unknown_family(card):
            raise BadInput(f"{card.id} cannot be used: {unknown}")
        reason = card.runtimes.get(runtime) or why_not(card.family, runtime)
        if reason:
            raise Unavailable(f"{card.id} cannot run on {runtime}: {reason}")
        if settings.threads is not None and settings.threads < 1:
            raise BadInput(f"threads is {settings.threads}; expected at least 1")
        if settings.dtype not in DTYPES:
            raise BadInput(f"dtype is {settings.dtype!r}; expected one of {', '.join(DTYPES)}")
        if settings.dtype != "float32" and not FAMILIES[card.family].has_language_model:
            raise BadInput(
                f"dtype is {settings.dtype}, and {card.id} has no language model that it would apply to; "
                "expected float32"
            )
        return SessionSpec(card.id, card.family, runtime, fetch(card, on_progress), settings)

    def _release(self, spec: SessionSpec) -> None:
        with self._lock:
            left = self._holders.get(spec, 0) - 1
            if left > 0:
                self._holders[spec] = left
                return
            self._holders.pop(spec, None)
            process = self._processes.pop(spec, None)
        if process is not None:
            process.close()

    def _sessions(self) -> list[ProcessSession]:
        with self._lock:
            return list(self._processes.values())

    def _check_open(self) -> None:
        if self._closed:
            raise BadInput("the registry is closed; make another one")


class OpenSession:
    """A holder's view of a session; closing the last one ends its process."""

    def __init__(self, registry: Registry, spec: SessionSpec, session: Session):
        self.model = spec.name
        self.runtime = spec.runtime
        self._registry = registry
        self._spec = spec
        self._session: Session | None = session

    @property
    def session(self) -> Session:
        """What is held; raises `BadInput` after `close`."""
        if self._session is None:
            raise BadInput(f"the session of {self.model} is closed; open it again")
        return self._session

    @property
    def reads_text(self) -> bool:
        """Whether its calls take a prompt; those of the other models take a recording."""
        return FAMILIES[self._spec.family].reads_text

    @property
    def load_seconds(self) -> float:
        """How long the model took to load, its process included."""
        return self.session.load_seconds

    @property
    def pid(self) -> int | None:
        """The process the model lives in; None while it is unloaded, or in this process."""
        return getattr(self.session, "pid", None)

    def stream(self, audio: AudioSource, **options: Any) -> Generator[Event, None, None]:
        """As `Session.stream`."""
        session = self.session
        return _with_load_time(session, session.stream(audio, **self._registry.resolve_options(options)))

    def stream_batch(
        self, audios: Sequence[AudioSource], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """As `Session.stream_batch`."""
        session = self.session
        return _with_load_time(session, session.stream_batch(audios, **self._registry.resolve_options(options)))

    def transcribe(self, audio: AudioSource, **options: Any) -> Transcript:
        """As `Session.transcribe`."""
        return last_transcript(self.stream(audio, **options))

    def transcribe_batch(self, audios: Sequence[AudioSource], **options: Any) -> list[Transcript]:
        """As `Session.transcribe_batch`."""
        return last_transcripts(self.stream_batch(audios, **options), audios)

    def generate_stream(self, prompt: Prompt, **options: Any) -> Generator[Piece | Generation, None, None]:
        """As `Session.generate_stream`."""
        session = self.session
        return _with_load_time(session, session.generate_stream(prompt, **options))

    def generate(self, prompt: Prompt, **options: Any) -> Generation:
        """As `Session.generate`."""
        return last_generation(self.generate_stream(prompt, **options))

    def trace(self, source: AudioSource | Prompt, stages: str = "*", **options: Any) -> Trace:
        """As `Session.trace`."""
        return self.session.trace(source, stages, **self._registry.resolve_options(options))

    def cancel(self) -> None:
        """Stops the call that is running in the session's process, whoever made it."""
        if isinstance(self._session, ProcessSession):
            self._session.cancel()

    def close(self) -> None:
        """Lets go of the session. May be called again."""
        with self._registry._lock:
            session, self._session = self._session, None
        if isinstance(session, ProcessSession):
            self._registry._release(self._spec)
        elif session is not None:
            session.close()

    def __enter__(self) -> OpenSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Given = TypeVar("Given")


def _with_load_time(session: Session, events: Generator[Given, None, None]) -> Generator[Given, None, None]:
    """The events, results with the load time of the session, its process included."""
    with contextlib.closing(events):
        for event in events:
            yield _loaded_in(session, event)


def _loaded_in(session: Session, event: Any) -> Any:
    if isinstance(event, tuple):  # of a batch
        return event[0], _loaded_in(session, event[1])
    if isinstance(event, (Transcript, Generation)):
        return replace(event, load_seconds=session.load_seconds)
    return event


def _on_disk(model: str | Path) -> tuple[Path, bool]:
    """The path that a model's name may be, and whether it is a directory; no name is too odd to be asked for."""
    path = Path(model)
    try:
        path = path.expanduser()
        return path, str(model) != "" and path.is_dir()  # no name is not the current folder
    except (OSError, RuntimeError):  # longer than a path may be, or of a user who is not there
        return path, False


def _unknown_family(card: Card) -> str | None:
    """What is wrong with the family that a user's card names, or None."""
    if card.family in FAMILIES:
        return None
    return f"its card names the family {card.family!r}, and there are only {', '.join(FAMILIES)}"
