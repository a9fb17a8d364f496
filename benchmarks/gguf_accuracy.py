"""The cost of each quantisation for the demo models: word error rate, transcripts unlike PyTorch's, distance, file
size.

It uses the same strings for every type: 3 to 7 digits of the speaker that the demos were not trained on.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np

from workbench.conversion import writer
from workbench.core.settings import SessionSpec, Settings
from workbench.formats.quantization import TYPES
from workbench.isolation.loader import open_here
from workbench.registry.registry import Registry
from workbench.registry.sources import local_checkpoint
from workbench.session.protocols import Session
from workbench.text.rates import pool_scores, score
from workbench.training.data.digits import load_fsdd, split_by_speaker
from workbench.training.evaluation import DigitString, evaluation_strings

TRACED = 20  # strings whose encoder outputs are compared


def texts(session: Session, strings: Sequence[DigitString]) -> list[str]:
    """Returns the transcript of every string."""
    return [session.transcribe((string.samples, 16000)).text for string in strings]


def encoder_outputs(session: Session, strings: Sequence[DigitString]) -> list[np.ndarray]:
    """Returns the encoder's output of every string, in float64."""
    stage = "encoder.output"
    return [session.trace((string.samples, 16000), stage)[stage].astype(np.float64) for string in strings]


def rate(transcripts: Sequence[str], strings: Sequence[DigitString]) -> float:
    """Returns the word error rate of the transcripts."""
    rates = pool_scores([score(string.text, text) for string, text in zip(strings, transcripts, strict=True)])
    assert rates.wer is not None
    return rates.wer


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the cosine of all values together."""
    return float((one * other).sum() / np.sqrt((one * one).sum() * (other * other).sum()))


def main() -> None:
    """Prints one table per demo model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--count", type=int, default=300, help="strings (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", action="append", help="a demo's id (default: all)")
    options = parser.parse_args()
    _, held_out = split_by_speaker(load_fsdd(options.data))
    strings, settings = evaluation_strings(held_out, count=options.count), Settings(threads=options.threads)
    for card in Registry().cards():
        directory = local_checkpoint(card)
        if "demo" not in card.source or "transcribe" not in card.tasks or directory is None:
            continue
        if options.model and card.id not in options.model:
            continue
        print(f"\n| `{card.id}`, {len(strings)} strings | MB | word error rate | transcripts unlike PyTorch's "
              "| 1 - cosine of the encoder's output, at most |\n| --- | --- | --- | --- | --- |")  # fmt: skip
        session = open_here(SessionSpec(card.id, card.family, "pytorch", directory, settings))
        reference, outputs = texts(session, strings), encoder_outputs(session, strings[:TRACED])
        session.close()
        print(f"| PyTorch, float32 | | {rate(reference, strings):.2%} | | |", flush=True)
        plans = import_module(f"workbench.conversion.{card.family}").plans(directory, "workbench")
        for kind in TYPES:
            with tempfile.TemporaryDirectory(prefix="workbench-benchmark-") as folder:
                [path] = writer.write(plans, kind, Path(folder) / "it.gguf")
                session = open_here(SessionSpec(card.id, card.family, "gguf", path, settings))
                transcripts = texts(session, strings)
                distance = max(
                    1 - cosine(a, b) for a, b in zip(encoder_outputs(session, strings[:TRACED]), outputs, strict=True)
                )
                session.close()
                unlike = sum(one != other for one, other in zip(transcripts, reference, strict=True))
                size = path.stat().st_size / 1e6
            print(f"| {kind} | {size:.1f} | {rate(transcripts, strings):.2%} | {unlike} | {distance:.0e} |", flush=True)


if __name__ == "__main__":
    main()
