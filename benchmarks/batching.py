"""Throughput of batched transcription: batch 8 against one at a time, over the same recordings of mixed length.
SenseVoice and Paraformer choose their own batches, so `--batch` is only a label for them.

    python -m benchmarks.batching [--model M ...] [--runtime R [--type T]] [--data D] [--batch B] [--count N] [--runs N]
        [--seconds LEAST MOST] [--dtype T]

The two alternate in one session. It prints the medians of seconds of speech per second of computing, their ratio (goal:
at least 2, of SenseVoice and Paraformer 1.67, which is 0.6 of the time) and whether the ids are equal. Exit status 1
below the goal, or if ids differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.read import read
from workbench.core.errors import WorkbenchError
from workbench.core.options import ListeningOptions
from workbench.pipelines.detection.voice_activity import speech_spans
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.registry.sources import assets
from workbench.session.values import Transcript

GOAL = 2.0
GOAL_OF_OTHERS = 1 / 0.6
MODELS = ("demo/funasr-nano", "demo/fireredasr")
Sound = tuple[np.ndarray, int]
IDS = tuple[tuple[int, ...], ...]


def digit_strings(data: Path, count: int) -> list[Sound]:
    """Returns strings of three to seven digits of the speaker that the demo models were not trained on."""
    from workbench.training.data.digits import load_fsdd, split_by_speaker
    from workbench.training.evaluation import evaluation_strings

    _, held_out = split_by_speaker(load_fsdd(data))
    return [(string.samples, SAMPLE_RATE) for string in evaluation_strings(held_out, count=count)]


def sample_pieces(count: int, least: float, most: float) -> list[Sound]:
    """Returns the project's sample recordings, repeated as needed: cut at pauses, or after a third, two thirds and all
    of `most` seconds. Pieces shorter than `least` are left out.
    """
    pieces = []
    for path in sorted((assets() / "samples").glob("*.wav")):
        samples = read(path).samples
        for longest in (most / 3, 2 * most / 3, most):
            for span in speech_spans(samples, ListeningOptions(vad="silero", max_segment_seconds=longest)).spans:
                first, end = round(span.start * SAMPLE_RATE), round(span.end * SAMPLE_RATE)
                if end - first >= least * SAMPLE_RATE:
                    pieces.append((samples[first:end], SAMPLE_RATE))
    if not pieces:
        raise SystemExit("there are no sample recordings in assets/samples; name the digits' folder with --data")
    return list(islice(cycle(pieces), count))


def transcribe(session: OpenSession, sounds: Sequence[Sound], batch: int, **options: Any) -> tuple[float, IDS]:
    """Returns the seconds for all recordings, and the ids of each; the options are the model's."""
    tokens: dict[int, tuple[int, ...]] = {}
    started = time.perf_counter()
    if batch == 1:
        tokens_alone = tuple(session.transcribe(sound, vad="none", **options).tokens for sound in sounds)
        return time.perf_counter() - started, tokens_alone
    sized = {"batch_size": batch} if session.model in MODELS else {}  # other models choose their own batches
    for number, event in session.stream_batch(sounds, vad="none", **sized, **options):
        if isinstance(event, Transcript):
            tokens[number] = event.tokens
        elif isinstance(event, WorkbenchError):
            raise event
    return time.perf_counter() - started, tuple(tokens[number] for number in range(len(sounds)))


def measure(session: OpenSession, sounds: Sequence[Sound], batch: int, runs: int) -> bool:
    """Runs both alternately and prints the results; returns whether the goal is met."""
    seconds = [len(samples) / rate for samples, rate in sounds]
    sizes = (1, batch)
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    ids: dict[int, IDS] = {}
    for turn in range(runs + 1):
        for size in sizes if turn % 2 else reversed(sizes):
            # The first turn warms up with just enough recordings to fill a batch.
            elapsed, ids[size] = transcribe(session, sounds if turn else sounds[:batch], size)
            if turn:
                rates[size].append(sum(seconds) / elapsed)
    print(f"{len(sounds)} recordings of {min(seconds):.1f} to {max(seconds):.1f} s, {sum(seconds):.0f} s in all")
    for size in sizes:
        speeds = rates[size]
        print(
            f"batch {size}: {statistics.median(speeds):6.1f} s of speech per second "
            f"({min(speeds):.1f} to {max(speeds):.1f})"
        )
    # Ratios of consecutive runs, as other work on the machine varies.
    ratio = statistics.median(many / one for one, many in zip(rates[1], rates[batch], strict=True))
    differ = [number for number, pair in enumerate(zip(ids[1], ids[batch], strict=True)) if pair[0] != pair[1]]
    goal = GOAL if session.model in MODELS else GOAL_OF_OTHERS
    print(f"ratio {ratio:.2f} (median of {runs} pairs; goal: at least {goal:.3g})")
    print("ids equal" if not differ else f"ids differ in {len(differ)} recordings, first in number {differ[0]}")
    return ratio >= goal and not differ


def main() -> int:
    """Parses the arguments and measures every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help=f"id or directory (default: {' and '.join(MODELS)})")
    parser.add_argument("--runtime", help="pytorch or gguf (default: the card's first)")
    parser.add_argument("--type", help="of the weights of a GGUF file, such as q8_0")
    parser.add_argument("--data", type=Path, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--count", type=int, default=64, help="recordings")
    parser.add_argument("--seconds", type=float, nargs=2, default=(0.0, 9.0), help="of the shortest and the longest")
    parser.add_argument("--dtype", help="of the products on PyTorch, such as float32 (default: the fastest)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.batch < 2:
        parser.error("--batch is to be at least 2")
    sounds = (
        digit_strings(options.data, options.count) if options.data else sample_pieces(options.count, *options.seconds)
    )
    good = True
    choices = {
        "threads": options.threads,
        "device": options.device,
        "quantization": options.type,
        "dtype": options.dtype,
    }
    settings = {
        name: value for name, value in choices.items() if value is not None and (name, value) != ("device", "cpu")
    }
    with Registry() as registry:
        for model in options.model or MODELS:
            print(f"## {model}, batch {options.batch}, {options.threads} threads, {options.device}")
            try:
                with registry.open(model, options.runtime, **settings) as session:
                    good = measure(session, sounds, options.batch, options.runs) and good
            except WorkbenchError as error:
                print(error, file=sys.stderr)
                good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
