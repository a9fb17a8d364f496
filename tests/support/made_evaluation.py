"""Made-up results of an evaluation: a corpus of digit strings, and models that err now and then."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from workbench.evaluation.report.columns import Columns, columns_of
from workbench.evaluation.rows import Result, Utterance, scores_of
from workbench.text.rates import score

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MODELS = ("demo/a|pytorch", "demo/a|gguf|f32", "demo/a|gguf|q8_0")


def utterances(count: int, seed: int = 0) -> list[Utterance]:
    """Digit strings of six speakers in three kinds of noise."""
    source = random.Random(seed)
    return [
        Utterance(
            f"take-{number:06d}",
            f"wavs/{number:06d}.wav",
            " ".join(source.choices(WORDS, k=source.randint(1, 12))),
            duration=round(source.uniform(0.5, 12), 2),
            speaker=f"speaker {source.randrange(6)}",
            noise=source.choice((None, "clean", "10 dB", "0 dB")),
            language="en",
        )
        for number in range(count)
    ]


def heard(text: str, rate: float, source: random.Random) -> str:
    """A text with some words taken for others, dropped and added."""
    words = [
        source.choice(WORDS) if source.random() < rate else each for each in text.split() if source.random() > 0.02
    ]
    return " ".join([*words, *(source.choices(WORDS) if source.random() < 0.05 else [])]).capitalize()


def results(corpus: Sequence[Utterance], model: str, rate: float, seed: int = 0) -> Iterator[Result]:
    """What a model made of a corpus; one recording of a hundred fails."""
    source = random.Random(f"{model} {seed}")
    for number, each in enumerate(corpus):
        spent = (each.duration or 0.0) * 0.02
        measured = {"compute_seconds": spent, "cpu_seconds": 1.5 * spent, "memory_bytes": 300 << 20}
        if number % 100 == 99:
            yield Result(each.id, model, "", error="the session ended", measured=measured)
            continue
        text = heard(each.text, rate, source)
        seconds = each.duration or 0.0
        yield Result(
            each.id, model, text, audio_seconds=seconds, scores=scores_of(score(each.text, text)), measured=measured
        )


def made_columns(count: int = 120, models: Sequence[str] = MODELS, **more: Any) -> Columns:
    """The results of models over a corpus, as columns."""
    corpus = utterances(count)
    found = {model: results(corpus, model, 0.04 * (place + 1)) for place, model in enumerate(models)}
    return columns_of(corpus, found, "basic", "1", **more)


def tone(utterance: Utterance) -> tuple[np.ndarray, int]:
    """A second of sound for any utterance."""
    return 0.3 * np.sin(np.arange(16000) / 20), 16000


def of_texts(pairs: list[tuple[str, str]], model: str = "demo/a", **options: Any) -> Columns:
    """Returns the results of a model for (reference, text) pairs."""
    corpus = [Utterance(f"{place}", f"{place}.wav", reference) for place, (reference, _) in enumerate(pairs)]
    results = [
        Result(each.id, model, text, scores=scores_of(score(each.text, text))) for each, (_, text) in zip(corpus, pairs)
    ]
    return columns_of(corpus, {model: results}, "basic", "1", **options)
