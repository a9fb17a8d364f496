"""The registry: models by name, and sessions by model and runtime, within a memory budget.

It opens sessions in processes of their own, and asks servers from this process. `workbench.registry.budget` ends the
least recently used process if the next does not fit. `workbench.registry.resolve` determines what is opened.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.core.progress import OnProgress, listening, report
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SETTINGS, SessionSpec
from workbench.display.progress import notebook_bar
from workbench.isolation.base import IsolatedSession
from workbench.isolation.concurrent import ParallelSession
from workbench.isolation.loader import open_here
from workbench.isolation.serial import ProcessSession
from workbench.isolation.threads import in_threads
from workbench.registry.availability import Availability, available, default_runtime, why_not_runnable
from workbench.registry.budget import MemoryBudget, default_budget
from workbench.registry.cards import BadCard, Card
from workbench.registry.catalogue import find_card, read_catalogue
from workbench.registry.handle import OpenSession, opened, quantization_of
from workbench.registry.resolve import chat_options, guest_of, is_made, options_class, resolve, resolve_options
from workbench.registry.weights import Weights, measured_weights, offered_weights
from workbench.session.protocols import Session
from workbench.system.memory import size

ON_SERVER = "on the server"  # the state of a session that is idle and has no process here
UNLOADED = "unloaded"  # the state of one that has to be loaded again for the next call

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Residency:
    """An open session as the user sees it."""

    model: str
    runtime: str
    memory_bytes: int  # 0 while it is unloaded, and if it runs only on a server
    busy: bool
    idle_seconds: float
    quantization: str | None = None  # of the weights, if they are in a GGUF file
    state: str = "idle"  # unloaded, loading, at work, idle or on the server
    load_seconds: float = 0.0  # the last time that its process started and loaded
    log: Path | None = None  # the path of the engine's log, if it keeps one


class Registry:
    """Model cards and open sessions.

    Args:
        memory_bytes: the bytes that all sessions may have resident; by default $WORKBENCH_MEMORY_GB or four fifths of
            the machine.
        isolate: whether to run each session in a process of its own. Without it, models load into this process.
        wait_for_memory: a load that does not fit beside sessions at work waits for them, and is not refused. Only if
            no thread keeps a stream open while it opens another session.
    """

    def __init__(self, memory_bytes: int | None = None, isolate: bool = True, wait_for_memory: bool = False):
        self.memory_budget = default_budget() if memory_bytes is None else _checked_bytes(memory_bytes)
        self.allowance_bytes: int | None = None  # what a call may take in its process; by default the whole budget
        self.is_listed: Callable[[Card], bool] | None = None  # the cards that users may know of; by default all
        self.told: Callable[[str], str] | None = None  # turns a reason into the one that users may read
        self.isolate = isolate
        self._budget = MemoryBudget(self.memory_budget, self._sessions, wait_for_memory)
        self._lock = threading.RLock()
        self._processes: dict[SessionSpec, IsolatedSession] = {}
        self._makers: dict[SessionSpec, Callable[[], object]] = {}  # make the files of converted models
        self._holders: dict[SessionSpec, int] = {}
        self._here: weakref.WeakSet[Session] = weakref.WeakSet()  # sessions in this process
        self._closed = False
        self._warned: set[str] = set()  # warnings about the user's list that were shown already

    # Models.

    def cards(self) -> list[Card]:
        """Returns all usable cards that are listed: the shipped ones, then the user's own."""
        return [card for card in read_catalogue().cards if self.is_listed is None or self.is_listed(card)]

    def bad_cards(self) -> list[BadCard]:
        """Returns the errors of the user's list and of its unusable cards; usually an empty list.

        It is also empty if not all cards are listed: the errors are for the user, as they name the list's place.
        """
        return [] if self.is_listed is not None else list(read_catalogue().bad)

    def card(self, model: str | Path) -> Card:
        """Returns the card of an id, or a card made for a checkpoint directory or a GGUF file.

        Raises `BadInput`, which suggests the nearest id, or says what is wrong with the card, directory or file.
        """
        catalogue = read_catalogue()
        card = find_card(model, catalogue)
        for each in catalogue.bad:
            if not each.id and each.reason not in self._warned:  # the unreadable list may hold another card of that id
                self._warned.add(each.reason)
                log.warning("%s", each.reason)
        return card

    def default_runtime(self, card: Card) -> str:
        """Returns the runtime that a model opens on by default."""
        return default_runtime(_checked(card))

    def availability(self, card: Card, runtime: str) -> Availability:
        """Returns whether the card's model can run on that runtime."""
        state = available(_checked(card), runtime)
        return replace(state, reason=self.told(state.reason)) if state.reason and self.told is not None else state

    def weights(self, card: Card, runtime: str) -> tuple[Weights, ...]:
        """Returns the quantisations in which the model can be opened on that runtime, without any work.

        Empty if the runtime takes the checkpoint unchanged, or cannot run the model.
        """
        if why_not_runnable(_checked(card), runtime) or not RUNTIMES[runtime].opens_gguf:
            return ()
        try:
            return offered_weights(card)
        except BadInput:  # `availability` says why
            return ()

    def measure(self, card: Card, runtime: str, on_progress: OnProgress | None = None) -> tuple[Weights, ...]:
        """As `weights`, but with the sizes of all files if the checkpoint is here. The first call takes some seconds.

        Raises what a conversion raises, and what `on_progress` raises to stop it.
        """
        return measured_weights(card, on_progress) if self.weights(card, runtime) else ()

    def options_class(self, model: str | Path) -> type[Any]:
        """Returns the dataclass of the model's options; raises `BadInput` for an unknown model."""
        return options_class(self.card(model))

    def chat_options_class(self, model: str | Path) -> type[Any]:
        """Returns the dataclass of the model's options in conversations; raises `BadInput` if it answers none."""
        return chat_options(self.card(model))

    # Sessions.

    def open(
        self,
        model: str | Path | Card,
        runtime: str | None = None,
        threads: int | None = None,
        device: str | None = None,
        dtype: str | None = None,
        quantization: str | None = None,
        kv_cache: str | None = None,
        on_progress: OnProgress | None = None,
        max_length: int | None = None,
        kv_gigabytes: float | None = None,
        tensor_parallel: int | None = None,
        eager: bool | None = None,
        stepwise: bool | None = None,
        weights: str | None = None,
        summation: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> OpenSession:
        """Returns a session of a model on a runtime.

        The default runtime is gguf for a GGUF file, vllm for a model on a server, and pytorch for other models.
        Downloads the checkpoint first if the card names its source, and converts it if the runtime opens GGUF files.
        Sessions of the same model, runtime and settings share one process.

        Args:
            model: a card, its id, or the path of a checkpoint directory or a GGUF file.
            on_progress: receives the progress of the download, the conversion and the load, at least four times a
                second while the process starts, and may raise to stop. In a notebook, the default is a bar.
            options: the options of later calls, by name; they are checked before anything is downloaded or loaded.

        The other parameters are settings (see `workbench.core.settings.Settings`). A missing setting takes the card's
        value, or else the default.

        Raises `BadInput` for an unknown model or a bad checkpoint, and `Unavailable` if the runtime or the source is
        missing, or if memory does not suffice.
        """
        arguments = locals()  # the parameters; a parameter that is a setting has its name
        settings = {name: arguments[name] for name in SETTINGS}
        self._check_open()
        card = model if isinstance(model, Card) else self.card(model)
        if options is not None and not isinstance(options, Mapping):
            raise BadInput(f"the options are of type {type(options).__name__}; expected a mapping of names to values")
        if on_progress is not None:
            return self._open(card, runtime, settings, options, on_progress)
        with notebook_bar(f"Opening {card.id}") as bar:
            return self._open(card, runtime, settings, options, bar)

    def _open(
        self,
        card: Card,
        runtime: str | None,
        settings: Mapping[str, Any],
        options: Mapping[str, Any] | None,
        on_progress: OnProgress | None,
    ) -> OpenSession:
        """As `open`, but with the settings as a mapping."""
        spec = resolve(card, runtime, settings, options, on_progress)
        if not self.isolate:
            with listening(on_progress):
                session = open_here(spec)
            self._here.add(session)
            return opened(spec, session, self.resolve_options, self._release)
        with self._lock:
            self._check_open()
            kind = ParallelSession if RUNTIMES[spec.runtime].parallel else ProcessSession
            admitted = None if in_threads(spec) else self._admitted  # it takes hardly any memory
            process = self._processes.setdefault(spec, kind(spec, admitted))
            process.allowance_bytes = min(self.allowance_bytes or self.memory_budget, self.memory_budget)
            if is_made(card, spec.runtime):
                self._makers[spec] = partial(resolve, card, spec.runtime, settings, on_progress=report)
            self._holders[spec] = self._holders.get(spec, 0) + 1
        try:
            with listening(on_progress):
                process.start()
        except BaseException:
            self._release(spec)
            raise
        return opened(spec, process, partial(self._prepared, process), self._release)

    def residents(self) -> list[Residency]:
        """Returns the open sessions, loaded or not, in the order in which they were opened."""
        now = time.monotonic()
        return [
            _residency(each, each.memory_bytes, each.busy, 0.0 if each.busy else max(now - each.last_used, 0.0))
            for each in self._sessions()
        ]

    def unload_idle(self, seconds: float) -> list[Residency]:
        """Ends the processes that no call has used for at least `seconds`; returns the sessions that were unloaded."""
        unloaded = []
        for process in self._sessions():
            idle = time.monotonic() - process.last_used
            if process.loaded and idle >= seconds:
                memory = process.memory_bytes
                if process.unload():
                    unloaded.append(_residency(process, memory, False, idle))
        return unloaded

    def unload(self, model: str, runtime: str, quantization: str | None = None) -> bool:
        """Ends the processes of a model on a runtime, in one quantisation or in all. The next call loads it again.

        Returns False if some of them were at work; these stay.
        """
        sessions = [each for each in self._sessions() if (each.model, each.runtime) == (model, runtime)]
        ended = [each.unload() for each in sessions if quantization in (None, quantization_of(each.spec))]
        return all(ended)

    def close(self) -> None:
        """Ends every session for good. May be called again."""
        with self._lock:
            self._closed = True
            sessions = [*self._processes.values(), *self._here]
            self._processes.clear()
            self._makers.clear()
            self._holders.clear()
        # In parallel, because an engine takes seconds to end.
        ending = [threading.Thread(target=session.close) for session in sessions]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()

    def __repr__(self) -> str:
        residents = self.residents()
        resident_bytes = sum(each.memory_bytes for each in residents)
        count = counted(len(residents), "session")
        closed = "closed, " if self._closed else ""
        memory = f"{size(resident_bytes)} of {size(self.memory_budget)}"
        return f"<Registry: {closed}{len(self.cards())} models, {count} in {memory}>"

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the options with the id of a voice activity model replaced by the place of its checkpoint."""
        return resolve_options(options)

    def _prepared(self, session: IsolatedSession, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the resolved options of a call. Makes room for a second model that the call loads."""
        resolved = self.resolve_options(options)
        if not in_threads(session.spec):
            self._budget.host(session, guest_of(resolved))
        return resolved

    def _release(self, spec: SessionSpec) -> None:
        with self._lock:
            holders = self._holders.get(spec, 0) - 1
            if holders > 0:
                self._holders[spec] = holders
                return
            self._holders.pop(spec, None)
            process = self._processes.pop(spec, None)
            self._makers.pop(spec, None)
        if process is not None:
            process.close()

    @contextlib.contextmanager
    def _admitted(self, session: IsolatedSession) -> Iterator[None]:
        """A context in which a session loads. Restores files that were lost since it was opened."""
        with self._lock:
            make = self._makers.get(session.spec)
        if make is not None and session.load_seconds:  # the first load follows `open`, which has just checked them
            make()
        with self._budget.admitted(session):
            yield

    def _sessions(self) -> list[IsolatedSession]:
        with self._lock:
            return list(self._processes.values())

    def _check_open(self) -> None:
        if self._closed:
            raise BadInput("the registry is closed; make another one")


def places_of_models() -> list[str]:
    """Returns the directories and files of the user's own models, and the addresses of servers that run them."""
    return [
        place
        for card in read_catalogue().cards
        if card.kind in ("directory", "gguf", "server")
        for name, place in card.source.items()
        if name in (card.kind, "language")
    ]


def _checked(card: Any) -> Card:
    if not isinstance(card, Card):
        raise BadInput(f"the card is of type {type(card).__name__}; expected what `Registry.card` returns for a model")
    return card


def _checked_bytes(value: Any) -> int:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        raise BadInput(f"memory_bytes is {value!r:.80}; expected a number of bytes")
    return int(min(value, sys.maxsize))


def _residency(process: IsolatedSession, memory: int, busy: bool, idle: float) -> Residency:
    loading = process.loading
    busy = busy or loading  # it may have begun meanwhile
    resting = ON_SERVER if in_threads(process.spec) and process.loaded else "idle" if memory else UNLOADED
    state = "loading" if loading else "at work" if busy else resting
    return Residency(
        model=process.model,
        runtime=process.runtime,
        memory_bytes=memory,
        busy=busy,
        idle_seconds=idle,
        quantization=quantization_of(process.spec),
        state=state,
        load_seconds=process.load_seconds,
        log=process.log,
    )
