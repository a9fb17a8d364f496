"""The sessions that the page keeps open between runs, shared by all its users.

A model loads once and stays in memory until it is idle for a while; the registry unloads models earlier if memory is
short. This file does not know Gradio.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.progress import OnProgress
from workbench.registry.handle import OpenSession
from workbench.registry.registry import UNLOADED, Registry, Residency, places_of_models
from workbench.registry.weights import AUTO
from workbench.serving.admission.guard import Guard, open_to_visitors
from workbench.system.memory import give_back_memory

IDLE_MINUTES = 10.0
# Minutes: with less, models would load for each run; a week means forever.
SHORTEST_IDLE, LONGEST_IDLE = 0.1, 7 * 24 * 60.0
CHECK_SECONDS = 15.0

log = logging.getLogger(__name__)


class SessionPool:
    """Open sessions by model, runtime, quantisation and settings.

    Args:
        registry: opens them; closed together with the pool.
        idle_minutes: a session without calls for this long is unloaded; the next call loads it again.
        guard: what visitors may do; by default the same as the owner.
        opens_ahead: small models that are likely to be used next are loaded before they are asked for.
    """

    def __init__(
        self,
        registry: Registry,
        idle_minutes: float = IDLE_MINUTES,
        guard: Guard | None = None,
        opens_ahead: bool = False,
    ):
        self.registry = registry
        self.opens_ahead = opens_ahead
        self.guard = guard or Guard()
        if self.guard.limits.process_gb:
            registry.allowance_bytes = int(self.guard.limits.process_gb * (1 << 30))
        if self.guard.public:
            registry.is_listed, registry.told = open_to_visitors, self.guard.told
            self.guard.places = places_of_models
        self._idle_minutes = idle_minutes
        self._sessions: dict[tuple[Any, ...], OpenSession] = {}
        # The number of runs that open each session that is not stored yet.
        self._opening: Counter[tuple[Any, ...]] = Counter()
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @property
    def idle_minutes(self) -> float:
        """The minutes without use after which a session is unloaded."""
        return self._idle_minutes

    @idle_minutes.setter
    def idle_minutes(self, minutes: float | None) -> None:
        if minutes is None or not SHORTEST_IDLE <= minutes <= LONGEST_IDLE:
            found = "empty" if minutes is None else f"{minutes:g} minutes"
            raise BadInput(
                f"the time after which models are unloaded is {found}; expected {SHORTEST_IDLE:g} to {LONGEST_IDLE:g} "
                "minutes (a week)"
            )
        self._idle_minutes = float(minutes)

    def session(
        self,
        model: str,
        runtime: str,
        quantization: str = "",
        on_progress: OnProgress | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> OpenSession:
        """Returns the session of a model on a runtime, opened if needed; raises the same errors as `Registry.open`.

        Args:
            quantization: for a runtime with several; empty for the default one.
            settings: changes to the settings of the model's card, see `workbench.core.settings.Settings`.

        In public mode, raises `Refused` for a model or for settings that are not open to visitors.
        """
        settings = dict(settings or {})
        if self.guard.public:
            listed_card = next((card for card in self.registry.cards() if card.id == model), None)
            self.guard.check_card(listed_card or self.registry.card(model))
            self.guard.check_settings(settings)
        key = _key(model, runtime, quantization, settings)
        with self._lock:
            if key in self._sessions:
                return self._sessions[key]
            self._opening[key] += 1
        try:
            if on_progress is not None:
                on_progress(0.0, "loading the model")
            with self.guard.telling():
                opened = self.registry.open(
                    model, runtime, quantization=quantization or AUTO, on_progress=on_progress, **settings
                )
        finally:
            with self._lock:
                self._opening[key] -= 1
        with self._lock:
            if isinstance(opened, OpenSession):
                opened.admission = self.guard.admitted
            shared = self._sessions.setdefault(key, opened)
        if shared is not opened:  # another run opened it in the meantime; both share one process
            opened.close()
        return shared

    def process(self, model: str, runtime: str, quantization: str = "") -> int | None:
        """Returns the id of the process that a session's model is loaded in; None if it is not loaded."""
        with self._lock:
            session = self._sessions.get(_key(model, runtime, quantization, {}))
        return None if session is None else session.pid

    def occupied(
        self, model: str, runtime: str, quantization: str = "", settings: Mapping[str, Any] | None = None
    ) -> bool:
        """Returns whether a run of that session would wait for another run, or for a load by another run."""
        key = _key(model, runtime, quantization, settings or {})
        with self._lock:
            session = self._sessions.get(key)
            return bool(self._opening[key]) if session is None else session.occupied

    def residents(self) -> list[Residency]:
        """Returns the sessions that are loaded right now, those on a server included."""
        return [each for each in self.registry.residents() if each.state != UNLOADED]

    def unload(self, model: str, runtime: str, quantization: str | None = None) -> None:
        """Ends a session's process and frees its memory; raises `BadInput` while it is working."""
        if not self.registry.unload(model, runtime, quantization):
            raise BadInput(f"{model} on {runtime} is at work; wait for it, or cancel the run first")

    def unload_idle(self) -> list[Residency]:
        """Unloads and returns the sessions that were idle for too long."""
        return self.registry.unload_idle(60 * self._idle_minutes)

    def watch(self) -> threading.Thread:
        """Starts the thread that unloads idle sessions until the pool is closed.

        It also gives the memory of past requests back to the system while nothing works.
        """

        def keep_watch() -> None:
            while not self._closing.wait(CHECK_SECONDS):
                try:
                    self.unload_idle()
                    if not self.guard.queue.running:
                        give_back_memory()
                except Exception:
                    log.exception("idle sessions could not be unloaded")

        thread = threading.Thread(target=keep_watch, name="idle sessions", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Ends the watch, every session, and the process that draws."""
        self._closing.set()
        self.guard.drawing.close()
        with self._lock:
            self._sessions.clear()
        self.registry.close()

    def __enter__(self) -> SessionPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _key(model: str, runtime: str, quantization: str, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return (model, runtime, quantization, *sorted(settings.items()))
