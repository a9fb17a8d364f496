"""The same conversations with a SpeechLM on PyTorch, GGUF (f32) and vLLM (float32): are all streams equal?

    python -m benchmarks.speechlm_runtimes [--conversations N] [--temperature T] [--samples FOLDER]

Every conversation has one to four turns; a third of the conversations begin with a recording. Text, audio, and text
followed by audio are requested in turn. PyTorch answers first. The other runtimes get the same messages, with PyTorch's
earlier answers in them, so one difference does not cause another. The benchmark requests each answer twice on each
runtime, to check that equal seeds give equal answers. vLLM takes 16 conversations at a time. Exit status 1 if an answer
differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.registry.sources import assets
from workbench.session.conversation import Answer
from workbench.training.data.digits import WORDS

MODEL = "demo/speechlm"
MODALITIES = ("text", "audio", "text_audio")
OTHERS: tuple[tuple[dict[str, Any], int], ...] = (  # settings, and conversations at a time
    ({"runtime": "gguf", "quantization": "f32"}, 1),
    ({"runtime": "vllm", "dtype": "float32", "kv_gigabytes": 0.3}, 16),
)


@dataclass(frozen=True)
class Exchange:
    """One turn: the messages so far, the options, and PyTorch's answer."""

    messages: tuple[dict[str, Any], ...]
    options: dict[str, Any]
    answer: Answer


def request(rng: np.random.Generator, recordings: Sequence[Path], with_speech: bool) -> dict[str, Any]:
    """Returns a user message: a recording with an instruction, or a text."""
    if with_speech:
        content = [{"type": "audio", "audio": str(recordings[int(rng.integers(len(recordings)))])}]
        message = str(rng.choice(["", "repeat", "backwards", "write"]))
        return {"role": "user", "content": [*content, {"type": "text", "text": message}] if message else content}
    digits = " ".join(WORDS[number] for number in rng.integers(0, 10, int(rng.integers(1, 5))))
    voice = str(rng.choice(["", " in the voice of lucas", " in the voice of slt"]))
    return {"role": "user", "content": f"{rng.choice(['say', 'write'])} {digits}{voice}"}


def converse(session: OpenSession, count: int, recordings: Sequence[Path], temperature: float) -> list[Exchange]:
    """Holds the conversations; returns all turns."""
    exchanges = []
    for number in range(count):
        rng = np.random.default_rng(number)
        messages: list[dict[str, Any]] = []
        for turn in range(1 + number % 4):
            messages.append(request(rng, recordings, with_speech=turn == 0 and number % 3 == 0))
            options = {
                "modalities": MODALITIES[(number + turn) % 3],
                "temperature": temperature,
                "seed": number,
                "max_text_tokens": 20,
                "max_audio_rows": 80,
            }
            answer = session.converse(list(messages), **options)
            exchanges.append(Exchange(tuple(messages), options, answer))
            messages.append(answer.message())
    return exchanges


def equal(one: Answer, other: Answer) -> bool:
    """Returns whether two answers have the same ids in all streams and the same finish."""
    rows = [np.asarray([] if each.streams is None else each.streams) for each in (one, other)]
    return one.token_ids == other.token_ids and one.finish == other.finish and np.array_equal(*rows)


def compare(session: OpenSession, exchanges: Sequence[Exchange], at_once: int) -> bool:
    """Prints how many answers are PyTorch's, and how many are the same a second time; returns whether all are."""

    def answer(turn: Exchange) -> Answer:
        return session.converse(list(turn.messages), **turn.options)

    with ThreadPoolExecutor(at_once) as pool:
        first, second = (list(pool.map(answer, exchanges)) for _ in range(2))
    same = sum(equal(turn.answer, actual) for turn, actual in zip(exchanges, first, strict=True))
    repeated = sum(map(equal, first, second))
    rows = sum(0 if actual.streams is None else len(actual.streams) for actual in first)
    print(
        f"{session.runtime}: {same} of {len(exchanges)} answers ({rows} rows) are PyTorch's, {repeated} the same again",
        flush=True,
    )
    return same == repeated == len(exchanges)


def main() -> int:
    """Prints the comparison; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=60)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--samples", type=Path, default=assets() / "samples", help="folder of short recordings, WAV")
    options = parser.parse_args()
    recordings = sorted(path for path in options.samples.glob("*.wav") if path.stat().st_size < 320_000)
    with Registry() as registry:
        with registry.open(MODEL, "pytorch", threads=1) as session:
            exchanges = converse(session, options.conversations, recordings, options.temperature)
            fine = [compare(session, exchanges, 1)]
        for settings, at_once in OTHERS:
            with registry.open(MODEL, threads=1, **settings) as session:
                fine.append(compare(session, exchanges, at_once))
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
