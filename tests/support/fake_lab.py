"""A registry whose sessions compute the small network of `tests.support.networks`, or do not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.networks import META, Fault, computed
from workbench.compare import read_trace
from workbench.core.errors import SessionDied, Unavailable
from workbench.core.options import build_options
from workbench.families import FAMILIES
from workbench.registry.cards import Card
from workbench.trace.trace import StageFilter, Trace

TYPES = {"auto": "float32", "f32": "float32", "f16": "float16"}


class FakeSession:
    """A session that is open until it is closed."""

    def __init__(self, registry: FakeRegistry, runtime: str, settings: Mapping[str, Any]):
        self.registry, self.runtime, self.settings = registry, runtime, settings
        self.calls = 0
        self.released = threading.Event()
        registry.open_now.append(self)
        registry.opened += 1
        registry.most_open = max(registry.most_open, len(registry.open_now))

    def trace(
        self, source: Any, stages: str = "*", given: Any = None, out: Any = None, embeddings: Any = (), **options: Any
    ) -> Trace:
        self.registry.embeddings.append(embeddings)
        self.registry.traced.append((self.runtime, dict(self.settings), dict(options)))
        self.registry.asked.append((stages, given))
        if self.settings.get("stepwise") and self.registry.no_steps:
            raise Unavailable(self.registry.no_steps)
        if (act := self.registry.acts.get(self.runtime)) is not None:
            act(self)
        kind = self.settings.get("quantization") or self.settings.get("dtype") or "float32"
        others = None if given is None else read_trace(given)
        self.calls += 1
        turned = self.runtime == "gguf" or (self.settings.get("summation", 0) > 0 and self.calls % 2 == 0)
        whole = computed(TYPES.get(kind, kind), faults=self.faults(options), reverse=turned, given=others)
        wanted = StageFilter(stages)
        meta = whole.meta | {"runtime": self.runtime, "options": options, "versions": {"numpy": "2"}}
        trace = Trace({stage: array for stage, array in whole.items() if wanted(stage)}, meta)
        return read_trace(trace.save(out)) if out else trace

    def faults(self, options: Mapping[str, Any]) -> Mapping[str, Fault]:
        off = {"frontend.fbank": lambda x: 3 * x + 1} if options.get("cmvn") == "off" else {}
        return {**off, **self.registry.faults.get(self.runtime, {})}

    def cancel(self) -> None:
        self.registry.cancelled += 1
        self.released.set()

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.registry.open_now.remove(self)


class FakeRegistry:
    """As `workbench.registry.registry.Registry`, as far as a parity run asks it."""

    def __init__(self) -> None:
        self.open_now: list[FakeSession] = []
        self.most_open = self.opened = 0
        self.cancelled = 0
        self.traced: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.asked: list[tuple[str, Any]] = []  # stages, and what they were to be computed from
        self.embeddings: list[Any] = []  # of each trace
        self.no_steps = ""  # why nothing is computed step by step
        self.missing: dict[str, str] = {}  # runtime, or a type, to why it is not available
        self.faults: dict[str, Mapping[str, Fault]] = {}
        self.acts: dict[str, Callable[[FakeSession], None]] = {}
        self.family = "sensevoice"

    def card(self, model: str) -> Card:
        return Card(model, "Tiny", self.family, {"directory": "tiny"})

    def options_class(self, model: str) -> type:
        return FAMILIES[self.family].options_class

    def resolve_options(self, options: dict[str, Any]) -> dict[str, Any]:
        build_options(self.options_class(""), options, "tiny")
        return options

    def open(self, model: str, runtime: str, on_progress: Any, **settings: Any) -> FakeSession:
        for each in (runtime, settings.get("dtype")):
            if each in self.missing:
                raise Unavailable(self.missing[each])
        on_progress(0.5, f"loading {model}")
        return FakeSession(self, runtime, settings)


def dies(session: FakeSession) -> None:
    """What a session does whose process ends."""
    raise SessionDied(f"the process of {META['model']} ended")


def waits(session: FakeSession) -> None:
    """What a session does that has long to compute: it goes on until it is told to stop."""
    assert session.released.wait(60)
    raise SessionDied("stopped")
