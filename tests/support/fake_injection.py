"""A registry whose language model answers with what it was given, on two runtimes, and whose speech model hears."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.support.fake_panels import CARDS, LANGUAGE_CARDS, FakeRegistry
from workbench.core.errors import BadInput, Unavailable
from workbench.embeddings import Embedding
from workbench.families.language.directory import PLACEHOLDER
from workbench.registry.cards import Card
from workbench.registry.registry import Availability
from workbench.session.values import Alternative, Generation, Neighbours, Piece
from workbench.trace.trace import Trace

WIDTH = 8
WORDS = ("seven", " one", " three")


def choices(first: str, probability: float) -> tuple[Alternative, ...]:
    """Two likeliest tokens."""
    rest = ("eight", 8) if first != "eight" else ("seven", 7)
    return (
        Alternative(7 if first == "seven" else 8, first, math.log(probability)),
        Alternative(rest[1], rest[0], math.log(1 - probability)),
    )


class FakeLanguageSession:
    """Answers with the number of tokens of each embedding, word by word; waits for `gate` after the first word."""

    weight_bytes = 1_000_000
    occupied = False

    def __init__(self, runtime: str, words: Sequence[str], probability: float):
        self.model, self.runtime = "fake/text", runtime
        self.words, self.probability = tuple(words), probability
        self.gate = threading.Event()
        self.gate.set()
        self.calls: list[dict[str, Any]] = []
        self.abandoned = threading.Event()

    def generate_stream(self, prompt: str, embeddings: Sequence[Embedding] = (), **options: Any) -> Iterator[Any]:
        self.calls.append({"prompt": prompt, "lengths": [each.tokens for each in embeddings], **options})
        if prompt.count(PLACEHOLDER) != len(embeddings):
            raise BadInput(f"the prompt has {prompt.count(PLACEHOLDER)} placeholders and {len(embeddings)} embeddings")
        try:
            for number, word in enumerate(self.words):
                found = choices(word.strip(), self.probability) if not number else ()
                yield Piece(word, (number,), found)
                assert self.gate.wait(60), "nobody opened the gate"
        except GeneratorExit:
            self.abandoned.set()
            raise
        tokens = tuple(range(len(self.words)))
        yield Generation(self.model, self.runtime, "".join(self.words), tokens, 12, "stop", 0.1, 0.25, 0.05, 64 << 20)

    def neighbours(self, values: np.ndarray, count: int = 5) -> Neighbours:
        if values.shape[1] != WIDTH:
            raise BadInput(f"the embedding is {values.shape[1]} wide; fake/text expects vectors of {WIDTH}")
        if self.runtime != "pytorch":
            raise Unavailable("the table is not shown on this runtime")
        ids = np.tile(np.arange(count), (len(values), 1))
        table = np.random.default_rng(0).normal(size=(32, WIDTH)).astype(np.float32)
        texts = tuple(tuple(f"<word {n}>" for n in range(count)) for _ in values)
        return Neighbours(ids, np.linspace(0.9, 0.1, count) + np.zeros(ids.shape), texts, table)

    def close(self) -> None:
        pass


class FakeHearing:
    """A speech model whose adaptor gives one embedding for each second."""

    weight_bytes = 1

    def trace(self, source: Any, stages: str = "*", **options: Any) -> Trace:
        values = np.random.default_rng(1).normal(size=(5, WIDTH)).astype(np.float32)
        return Trace({"adaptor.output": values, "prompt.text": np.array(f"Transcribe: {PLACEHOLDER}\n")}, {})

    def close(self) -> None:
        pass


class FakeInjectRegistry(FakeRegistry):
    """A language model on pytorch and gguf that agree but for a little, and a speech model."""

    listed = (*CARDS, *LANGUAGE_CARDS)

    def __init__(self) -> None:
        super().__init__()
        self.texts = {
            "pytorch": FakeLanguageSession("pytorch", WORDS, 0.9),
            "gguf": FakeLanguageSession("gguf", WORDS, 0.8),
        }

    def availability(self, card: Card, runtime: str) -> Availability:
        if (card.id, runtime) == ("fake/text", "gguf"):
            return Availability(True)
        return super().availability(card, runtime)

    def open(self, model: str, runtime: str = "pytorch", quantization: str = "auto", on_progress: Any = None) -> Any:  # type: ignore[override]
        self.opened.append(f"{model}|{runtime}")
        if model == "fake/nano":
            return FakeHearing()
        return self.texts[runtime] if model == "fake/text" else super().open(model, runtime, quantization, on_progress)
