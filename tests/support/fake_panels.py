"""A registry without models: its sessions say what they are told to, as fast as they are told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.audio.read import read
from workbench.core.errors import Cancelled, Unavailable
from workbench.families import FAMILIES
from workbench.registry.cards import BadCard, Card
from workbench.registry.registry import Availability, Residency
from workbench.registry.weights import Weights
from workbench.session.values import Event, Partial, Progress, Segment, Transcript

CARDS = (
    Card("fake/sense", "Fake SenseVoice", "sensevoice", {"demo": "nowhere"}, ("en",), licence="none"),
    Card("fake/para", "Fake Paraformer", "paraformer", {"demo": "nowhere"}, ("en",), licence="none"),
    Card("fake/hub", "Fake from afar", "sensevoice", {"hub": "nobody/nothing"}, ("en",), megabytes=940),
    Card("fake/vad", "Fake VAD", "fsmn_vad", {"demo": "nowhere"}, tasks=("vad",)),
)
LANGUAGE_CARDS = (
    Card("fake/nano", "Fake Nano", "funasr_nano", {"demo": "nowhere"}, ("en", "zh"), licence="none"),
    Card("fake/text", "Fake language model", "causal_lm", {"demo": "nowhere"}, tasks=("generate",)),
)


class FakeSession:
    """Hears the words it was given, half a second each. Waits for `gate` after the first of them."""

    weight_bytes = 7_200_000
    occupied = False

    def __init__(self, model: str, runtime: str, words: str, gate: threading.Event, tags: dict[str, str]):
        self.model, self.runtime, self.words, self.gate, self.tags = model, runtime, words, gate, tags
        self.calls: list[dict[str, Any]] = []
        self.abandoned = threading.Event()  # set when a caller ended the stream before its end

    def stream(self, audio: str, **options: Any) -> Iterator[Event]:
        self.calls.append(options)
        parts = []
        try:
            length = read(audio).seconds
            yield Progress(0.0, length, "transcribing")
            for index, word in enumerate(self.words.split()):
                start = min(index * 0.5, length)
                parts.append(Segment(start, min(start + 0.5, length), word))
                yield parts[-1]
                yield Progress(start, length, "transcribing")
                assert self.gate.wait(60), "nobody opened the gate"
        except (GeneratorExit, Cancelled):  # the reader of recordings raises the second
            self.abandoned.set()
            raise
        yield Transcript(
            self.model,
            self.runtime,
            self.words,
            "en",
            tuple(parts),
            tuple(range(len(parts))),
            length,
            0.1,
            0.25,
            64 << 20,
            self.tags,
            (),
        )

    def close(self) -> None:
        pass


class FakeWriter(FakeSession):
    """Writes its words letter by letter, as tokens, as far as it was allowed to."""

    letters = 0  # written in the last call
    allowed = 1 << 30

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._changed = threading.Condition()

    def allow(self, letters: int) -> None:
        """Lets so many letters be written in all."""
        with self._changed:
            self.allowed = letters
            self._changed.notify_all()

    def stream(self, audio: str, **options: Any) -> Iterator[Event]:
        self.calls.append(options)
        self.letters = 0
        try:
            length = read(audio).seconds
            yield Progress(0.0, length, "transcribing")
            for end in range(1, len(self.words) + 1):
                with self._changed:
                    assert self._changed.wait_for(lambda end=end: end <= self.allowed, 60), "nobody allowed more"  # type: ignore[misc]
                self.letters = end
                yield Partial(0.0, length, self.words[:end])
        except (GeneratorExit, Cancelled):  # the reader of recordings raises the second
            self.abandoned.set()
            raise
        segment = Segment(0.0, length, self.words)
        yield segment
        notes = ("a segment of speech was cut off",)
        yield Transcript(self.model, self.runtime, self.words, None, (segment,), (1, 2), length, 0.1, 0.25, notes=notes)


class FakeRegistry:
    """What the page uses of `workbench.registry.registry.Registry`."""

    memory_budget = 8 << 30
    listed: tuple[Card, ...] = CARDS
    bad: tuple[BadCard, ...] = ()

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        tags = {"emotion": "NEUTRAL", "event": "Speech", "itn": "woitn"}
        self.sessions = {
            "fake/sense": FakeSession("fake/sense", "pytorch", "three eleven one", self.gate, tags),
            "fake/para": FakeSession("fake/para", "pytorch", "three seven one", self.gate, {}),
        }
        self.opened: list[str] = []
        self.unloaded: list[str] = []
        self.closed = False

    def cards(self) -> list[Card]:
        return list(self.listed)

    def bad_cards(self) -> list[BadCard]:
        return list(self.bad)

    def availability(self, card: Card, runtime: str) -> Availability:
        if runtime == "pytorch":
            fetches = "hub" in card.source
            return Availability(not fetches, "not downloaded yet" if fetches else None, fetches)
        return Availability(False, f"{card.name} has no {runtime} network; use pytorch")

    def default_runtime(self, card: Card) -> str:
        return "vllm" if card.kind == "server" else "pytorch"

    def options_class(self, model: str) -> type[Any]:
        return FAMILIES[next(card.family for card in self.listed if card.id == model)].options_class

    def weights(self, card: Card, runtime: str) -> tuple[Weights, ...]:
        return ()

    def open(
        self, model: str, runtime: str = "pytorch", quantization: str = "auto", on_progress: Any = None, **settings: Any
    ) -> FakeSession:
        if model == "fake/hub":
            if on_progress:
                on_progress(0.5, "downloading nobody/nothing: 470 of 940 MB")
            raise Unavailable("fake/hub is not on this machine and the hub cannot be reached")
        self.opened.append(model)
        return self.sessions[model]

    def residents(self) -> list[Residency]:
        left = [name for name in dict.fromkeys(self.opened) if name not in self.unloaded]
        return [Residency(name, "pytorch", 64 << 20, False, 30.0) for name in left]

    def unload(self, model: str, runtime: str, quantization: str | None = None) -> bool:
        if not self.gate.is_set():
            return False
        self.unloaded.append(model)
        return True

    def unload_idle(self, seconds: float) -> list[Residency]:
        found = self.residents()
        self.unloaded += [each.model for each in found]
        return found

    def close(self) -> None:
        self.closed = True


class FakeLanguageRegistry(FakeRegistry):
    """One more model that writes token by token, and one that does not transcribe."""

    listed = (*CARDS, *LANGUAGE_CARDS)
    words = "seven one three, and then some more words until the line is full and goes on"

    def __init__(self) -> None:
        super().__init__()
        self.writer = FakeWriter("fake/nano", "pytorch", self.words, threading.Event(), {})
        self.sessions["fake/nano"] = self.writer


class FakeGgufRegistry(FakeRegistry):
    """One model also runs on gguf, in three quantisations, of which one is converted while somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.converting = threading.Event()  # set while somebody does
        self.made = {"f32"}
        self.measured = True  # the sizes of the files are known
        self.stopped = threading.Event()  # set when somebody broke a conversion off
        self.conversion = threading.Event()
        self.conversion.set()  # cleared, it goes on for ever

    def availability(self, card: Card, runtime: str) -> Availability:
        if (card.id, runtime) in (("fake/sense", "gguf"), ("fake/hub", "gguf")):
            return super().availability(card, "pytorch")
        return super().availability(card, runtime)

    def weights(self, card: Card, runtime: str) -> tuple[Weights, ...]:
        if runtime != "gguf" or card.id not in ("fake/sense", "fake/hub"):
            return ()
        here = self.measured and card.id == "fake/sense"
        sizes = {"f32": 7_200_000, "f16": 3_600_000, "q8_0": 1_950_000, "q4_0": 1_100_000}
        return tuple(
            Weights(name, count if here else None, here and name in self.made, name == "f32")
            for name, count in sizes.items()
        )

    def measure(self, card: Card, runtime: str, on_progress: Any = None) -> tuple[Weights, ...]:
        self.measured = True
        return self.weights(card, runtime)

    def open(
        self, model: str, runtime: str = "pytorch", quantization: str = "auto", on_progress: Any = None
    ) -> FakeSession:
        if runtime != "gguf":
            return super().open(model, runtime, quantization, on_progress)
        self.converting.set()
        try:
            if on_progress:
                on_progress(0.25, f"converting to {quantization}")
            while not self.conversion.wait(0.02):
                on_progress(0.5, f"converting to {quantization}")
        except Cancelled:
            self.stopped.set()
            raise
        self.made.add(quantization)
        self.opened.append(f"{model}|{runtime}|{quantization}")
        words = {"f32": "three seven one", "q4_0": "three eleven"}.get(quantization, "three eleven one")
        session = FakeSession(model, runtime, words, self.gate, {})
        sizes = {each.quantization: each.nbytes or 0 for each in self.measure(CARDS[0], "gguf")}
        session.weight_bytes = sizes[quantization]
        return session

    def residents(self) -> list[Residency]:
        left = [name for name in dict.fromkeys(self.opened) if name not in self.unloaded]
        return [
            Residency(*name.split("|")[:2], 64 << 20, False, 30.0, name.split("|")[2]) for name in left if "|" in name
        ]

    def unload(self, model: str, runtime: str, quantization: str | None = None) -> bool:
        self.unloaded.append(f"{model}|{runtime}|{quantization}")
        return True


def tone(path: Path, seconds: float = 2.0) -> Path:
    """A WAV file with a tone."""
    import numpy as np

    from workbench.audio.read import write_wav

    moments = np.arange(round(seconds * 16000)) / 16000
    write_wav(path, (0.3 * np.sin(2 * np.pi * 440 * moments)).astype(np.float32))
    return path


def broken(path: Path) -> Path:
    """A text that is called a WAV file."""
    path.write_text("this is no sound\n" * 40)
    return path
