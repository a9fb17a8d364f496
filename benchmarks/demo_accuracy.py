"""Word error rates of the shipped demo models on the speaker that they were not trained on, under every condition."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.registry.registry import Registry
from workbench.registry.sources import local_checkpoint
from workbench.training.data.digits import load_fsdd, split_by_speaker
from workbench.training.model_card import measure_checkpoint


def main() -> None:
    """Prints one table per demo model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--held-out", help="speaker to measure on (default: the last in alphabetical order)")
    options = parser.parse_args()
    _, held_out = split_by_speaker(load_fsdd(options.data), options.held_out)
    for card in Registry().cards():
        directory = local_checkpoint(card)
        if "demo" in card.source and directory is not None:
            print(f"## {card.id}, {', '.join(sorted({take.speaker for take in held_out}))}")
            for row in measure_checkpoint(directory, card.family, held_out):
                print(f"{row.word_error_rate:6.1%}  {row.condition}, {row.digits} digits, {row.strings} strings")


if __name__ == "__main__":
    main()
