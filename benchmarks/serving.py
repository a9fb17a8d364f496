"""The gain of an engine's batching: 32 recordings at once against one after another, and against PyTorch's own batch.

    python -m benchmarks.serving [--model M ...] [--data D] [--count N] [--runs N] [--threads N] [--dtype T] [--alone]
                                 [--goal R] [--tokens N]

All alternate over the same recordings. It prints medians of recordings and of seconds of speech per second of
computing, their ratios (goal for vLLM at once against one after another: at least 3, on a GPU 5) and whether the ids
are equal. For comparison, FireRedASR's authors report for vLLM on a GPU 10 to 50 samples per second, 5 times as many
as one after another. Exit status 1 below the goal, or if ids differ.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.batching import IDS, MODELS, Sound, digit_strings, sample_pieces, transcribe
from workbench.core.errors import WorkbenchError
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry

GOAL = 3.0  # on processors


def one_by_one(session: OpenSession, sounds: list[Sound], **options: Any) -> tuple[float, IDS]:
    """Transcribes one after another; returns the seconds for all, and the ids of each."""
    results = [transcribe(session, [sound], 1, **options) for sound in sounds]
    return sum(seconds for seconds, _ in results), tuple(ids for _, each in results for ids in each)


def measure(
    engine: OpenSession, reference: OpenSession | None, sounds: list[Sound], runs: int, goal: float, **options: Any
) -> bool:
    """Measures all ways in turns, with options of the models; prints the results; returns whether the goal is met."""
    ways = {
        "vLLM, one after another": lambda: one_by_one(engine, sounds, **options),
        f"vLLM, {len(sounds)} at once": lambda: transcribe(engine, sounds, len(sounds), **options),
    }
    if reference is not None:
        ways["PyTorch, one after another"] = lambda: one_by_one(reference, sounds, **options)
        ways[f"PyTorch, batch of {len(sounds)}"] = lambda: transcribe(reference, sounds, len(sounds), **options)
    times: dict[str, list[float]] = {way: [] for way in ways}
    ids: dict[str, IDS] = {}
    for turn in range(runs + 1):
        for way in ways if turn % 2 else reversed(ways):
            seconds, ids[way] = ways[way]()
            if turn:  # the first turn warms up
                times[way].append(seconds)
    speech = sum(len(samples) / rate for samples, rate in sounds)
    print(f"{len(sounds)} recordings, {speech:.0f} s of speech")
    for way, measured in times.items():
        middle = statistics.median(measured)
        print(
            f"{way:28} {len(sounds) / middle:6.1f} recordings/s, {speech / middle:6.1f} s of speech/s "
            f"({min(measured):.2f} to {max(measured):.2f} s)"
        )
    single, concurrent, *of_pytorch = times.values()
    ratio = statistics.median(one / many for one, many in zip(single, concurrent, strict=True))
    print(f"vLLM at once against one after another: {ratio:.2f} (median of {runs} pairs; goal: at least {goal:g})")
    if of_pytorch:
        against = statistics.median(other / many for other, many in zip(of_pytorch[-1], concurrent, strict=True))
        print(f"vLLM at once against PyTorch's batch: {against:.2f}")
    differ = [number for number, each in enumerate(zip(*ids.values(), strict=True)) if len(set(each)) > 1]
    print("ids equal" if not differ else f"ids differ in {len(differ)} recordings, first in number {differ[0]}")
    return ratio >= goal and not differ


def main() -> int:
    """Parses the arguments and measures every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help=f"id or directory (default: {' and '.join(MODELS)})")
    parser.add_argument("--data", type=Path, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--count", type=int, default=32, help="recordings")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dtype", default="float32", help="of the language model (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="of PyTorch (default: %(default)s)")
    parser.add_argument("--alone", action="store_true", help="without PyTorch beside it")
    parser.add_argument("--goal", type=float, default=GOAL, help="(default: %(default)s)")
    parser.add_argument("--tokens", type=int, help="of an answer, at most (default: as many as the model writes)")
    options = parser.parse_args()
    most = {} if options.tokens is None else {"max_new_tokens": options.tokens}
    sounds = digit_strings(options.data, options.count) if options.data else sample_pieces(options.count, 0.0, 9.0)
    good = True
    with Registry() as registry:
        for model in options.model or MODELS:
            print(f"## {model}, {options.threads} threads")
            try:
                with contextlib.ExitStack() as stack:
                    engine = stack.enter_context(
                        registry.open(model, "vllm", threads=options.threads, dtype=options.dtype)
                    )
                    reference = None
                    if not options.alone:
                        other = {"threads": options.threads, "device": options.device, "dtype": options.dtype}
                        reference = stack.enter_context(registry.open(model, "pytorch", **other))
                    print(f"the engine took {engine.load_seconds:.1f} s to start")
                    good = measure(engine, reference, sounds, options.runs, options.goal, **most) and good
            except WorkbenchError as error:
                print(error, file=sys.stderr)
                good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
