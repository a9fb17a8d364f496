"""The cost of products in 16 bits on PyTorch for the demo models: word error rate, transcripts unlike float32's, and
the distance of each stage on real speech.

    python -m benchmarks.pytorch_types --data FSDD [--count N] [--model M ...] [--dtype T ...]

Strings as in `gguf_accuracy`; the stages are of the project's LibriVox samples. Goal: word error rates within 0.2
points of float32's. Exit status 1 beyond it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gguf_accuracy import cosine, rate, texts
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
from workbench.registry.registry import Registry
from workbench.registry.sources import assets, local_checkpoint
from workbench.training.data.digits import load_fsdd, split_by_speaker
from workbench.training.evaluation import evaluation_strings

GOAL = 0.002
STAGES = "encoder.layers.*,encoder.output,predictor.*,adaptor.output,decoder.output,logits"


def stages(session: Any) -> list[Mapping[str, np.ndarray]]:
    """Returns the stages of every sample of real speech."""
    return [session.trace(path, STAGES) for path in sorted((assets() / "samples").glob("librivox*.wav"))]


def farthest(outputs: list[Mapping[str, np.ndarray]], expected: list[Mapping[str, np.ndarray]]) -> dict[str, float]:
    """Returns the largest 1 - cosine of each kind of stage, over samples and layers."""
    largest: dict[str, float] = {}
    for one, other in zip(outputs, expected, strict=True):
        for stage, array in other.items():
            kind = "encoder.layers" if stage.startswith("encoder.layers.") else stage
            if array.shape == one[stage].shape:  # rows are tokens after CIF
                distance = 1 - cosine(one[stage].astype(np.float64), array.astype(np.float64))
                largest[kind] = max(largest.get(kind, 0.0), distance)
    return largest


def main() -> int:
    """Prints one table per demo model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--count", type=int, default=300, help="strings (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", action="append", help="a demo's id (default: all)")
    parser.add_argument("--dtype", action="append", help="default: bfloat16 and float16")
    options = parser.parse_args()
    _, held_out = split_by_speaker(load_fsdd(options.data))
    strings, good = evaluation_strings(held_out, count=options.count), True
    for card in Registry().cards():
        directory = local_checkpoint(card)
        if "demo" not in card.source or "transcribe" not in card.tasks or directory is None:
            continue
        if options.model and card.id not in options.model:
            continue
        print(f"\n| `{card.id}`, {len(strings)} strings | word error rate | transcripts unlike float32's "
              "| 1 - cosine on real speech, at most |\n| --- | --- | --- | --- |")  # fmt: skip
        reference: tuple[list[str], list[Mapping[str, np.ndarray]]] | None = None
        for kind in ("float32", *(options.dtype or ("bfloat16", "float16"))):
            settings = Settings(threads=options.threads, device=options.device, dtype=kind)
            session = open_here(SessionSpec(card.id, card.family, "pytorch", directory, settings))
            transcripts, outputs = texts(session, strings), stages(session)
            session.close()
            reference = reference or (transcripts, outputs)
            unlike = sum(one != other for one, other in zip(transcripts, reference[0], strict=True))
            distances = ", ".join(
                f"{stage} {distance:.0e}" for stage, distance in farthest(outputs, reference[1]).items() if distance
            )
            print(f"| {kind} | {rate(transcripts, strings):.2%} | {unlike} | {distances} |", flush=True)
            good = good and abs(rate(transcripts, strings) - rate(reference[0], strings)) <= GOAL
    print(f"\nword error rates within {GOAL:.1%} of float32's: {'yes' if good else 'no'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
