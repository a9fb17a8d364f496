"""Directories of results for tests, written by the writer itself from made-up texts: no model runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from workbench.evaluation.rows import Result, Utterance, scores_of
from workbench.evaluation.store import Evaluation, Manifest, Model, Run, read
from workbench.evaluation.writer import Writer, claimed, drafted, write_run
from workbench.text.rates import score

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MODELS = ("demo/sensevoice|pytorch", "demo/sensevoice|gguf|q8_0")


def model(key: str) -> Model:
    """A model of a key, with nothing special."""
    card, runtime, *quantization = key.split("|")
    return Model(
        key, card, runtime, (quantization or [None])[0], {"id": card, "name": card.title()}, f"digest of {card}"
    )


def utterances(count: int, seed: int = 0) -> list[Utterance]:
    """Strings of digits by a few speakers; every tenth is silence."""
    drawn = random.Random(seed)
    found = []
    for number in range(count):
        text = " ".join(drawn.choices(WORDS, k=drawn.randint(1, 8))) if number % 10 != 9 else ""
        found.append(
            Utterance(
                f"u{number:05d}",
                f"audio/u{number:05d}.wav",
                text,
                duration=round(0.4 + 0.4 * len(text.split()), 3),
                speaker=f"speaker {drawn.randint(1, 4)}",
                noise=drawn.choice([None, "street", "café"]),
                extra={"take": drawn.randint(1, 3)},
            )
        )
    return found


def result(key: str, utterance: Utterance, drawn: random.Random, wrong: float) -> Result:
    """A result that replaces, drops and adds some words; one in a hundred failed."""
    measured = {
        "compute_seconds": round(drawn.uniform(0.01, 0.1), 6),
        "cpu_seconds": round(drawn.uniform(0.01, 0.2), 6),
        "memory_bytes": drawn.randint(200, 300) * 10**6,
        "worker": f"local-{drawn.randint(1, 2)}",
        "when": "2026-01-31T12:00:00+00:00",
    }
    if drawn.random() < 0.01:
        return Result(utterance.id, key, "", f"there is no file {utterance.audio}", measured=measured)
    words = [drawn.choice(WORDS) if drawn.random() < wrong else word for word in utterance.text.split()]
    words = [word for word in words if drawn.random() > wrong / 2]
    if drawn.random() < wrong:
        words.append(drawn.choice(WORDS))
    text = " ".join(words)
    timed = tuple({"text": word, "start": 0.4 * n, "end": 0.4 * n + 0.3} for n, word in enumerate(words))
    scores = scores_of(score(utterance.text, text))
    return Result(utterance.id, key, text, None, utterance.duration or 0.0, scores, words=timed, measured=measured)


def make_evaluation(
    directory: Path,
    count: int = 60,
    models: Sequence[str] = MODELS,
    wrong: Sequence[float] = (0.05, 0.07),
    seed: int = 0,
    shard_rows: int = 1000,
    empty: bool = False,
) -> Evaluation:
    """Writes a whole evaluation.

    Args:
        wrong: about how many of the words each model gets wrong.
        empty: without any results.
    """
    corpus = utterances(count, seed)
    skipped = [{"where": "list.csv, line 7", "reason": "the row has no text; expected the words that are said"}]
    with claimed(directory):
        with drafted(directory, [*corpus, *skipped]) as draft:
            manifest = Manifest(
                str(directory.parent / "list.csv"), str(directory.parent), "csv", draft.digest, count, len(skipped)
            )
            run = Run(
                manifest,
                {"name": "basic", "version": "1"},
                tuple(map(model, models)),
                {"speech-workbench": "0.1.0"},
                shard_rows,
                measured={"created": "2026-01-31T12:00:00+00:00", "machine": "made up"},
            )
            draft.accept()
            write_run(directory, run)
        writer = Writer(directory, run, models)
        for number, key in enumerate(() if empty else models):
            drawn = random.Random(f"{seed} {key}")
            for utterance in corpus:
                writer.add(result(key, utterance, drawn, wrong[number % len(wrong)]))
        writer.close()
    return read(directory)
