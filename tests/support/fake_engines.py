"""A registry of fakes of which one model also has an engine that starts slowly and takes several calls at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.fake_panels import CARDS, FakeRegistry, FakeSession
from workbench.core.errors import Cancelled
from workbench.registry.cards import Card
from workbench.registry.registry import Availability, Residency
from workbench.session.values import Event

ENGINE_CARDS = (
    Card(
        "fake/nano",
        "Fake Nano",
        "funasr_nano",
        {"demo": "nowhere"},
        ("en",),
        licence="none",
        settings={"vllm": {"dtype": "bfloat16", "max_length": 4096}},
    ),
    Card("fake/far", "Fake on a server", "funasr_nano", {"server": "http://gpu.example:8000"}, ("en",), licence="none"),
)


class FakeEngine(FakeSession):
    """Takes several calls at once, and knows how many it had; with a gate, each goes on when all are there."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.settings: dict[str, Any] = {}
        self.running = self.most = 0
        self._changed = threading.Condition()

    def stream(self, audio: str, **options: Any) -> Iterator[Event]:
        with self._changed:
            self.running += 1
            self.most = max(self.most, self.running)
            self._changed.notify_all()
        try:
            yield from super().stream(audio, **options)
        finally:
            with self._changed:
                self.running -= 1

    def wait_for(self, calls: int) -> bool:
        """Whether so many calls came to be at work at once, within a minute."""
        with self._changed:
            return self._changed.wait_for(lambda: self.most >= calls, 60)


class FakeEngineRegistry(FakeRegistry):
    """`fake/nano` on PyTorch and vLLM, `fake/far` on a server only; the others have no vLLM."""

    listed = (*CARDS, *ENGINE_CARDS)

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log
        self.engines: dict[str, FakeEngine] = {}  # by model and settings
        self.starting = threading.Event()
        self.stopped = threading.Event()  # set when somebody broke a start off
        self.started = threading.Event()
        self.started.set()  # cleared, a start goes on for ever
        self.sessions["fake/nano"] = FakeSession("fake/nano", "pytorch", "three seven one", self.gate, {})

    def availability(self, card: Card, runtime: str) -> Availability:
        if card.kind == "server":
            return Availability(runtime == "vllm", None if runtime == "vllm" else "it runs on a server")
        if (card.id, runtime) == ("fake/nano", "vllm"):
            return Availability(True)
        return super().availability(card, runtime)

    def open(
        self, model: str, runtime: str = "pytorch", quantization: str = "auto", on_progress: Any = None, **settings: Any
    ) -> FakeSession:
        if runtime != "vllm":
            return super().open(model, runtime, quantization, on_progress)
        self.starting.set()
        try:
            on_progress(0.25, "starting the engine")
            while not self.started.wait(0.02):
                on_progress(0.5, "loading the weights")
        except Cancelled:
            self.stopped.set()
            raise
        engine = FakeEngine(model, runtime, "three seven one", self.gate, {})
        engine.settings = settings
        self.engines[f"{model} {settings}"] = engine
        return engine

    def residents(self) -> list[Residency]:
        engines = [
            Residency(each.model, "vllm", 3 << 30, each.running > 0, 30.0, None, "idle", 41.5, self.log)
            for each in self.engines.values()
        ]
        return super().residents() + engines

    def unload(self, model: str, runtime: str, quantization: str | None = None) -> bool:
        if runtime == "vllm":
            self.engines = {name: each for name, each in self.engines.items() if each.model != model}
        return super().unload(model, runtime, quantization)
