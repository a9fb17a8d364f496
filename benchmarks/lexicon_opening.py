"""How long it takes to open a lexicon of many words: the command `workbench decode`, and its parts in this process.

    python -m benchmarks.lexicon_opening [--words N] [--rounds N] [--other CHECKOUT]

The words are random strings of letters that share their beginnings, as real ones do. The command decodes one short file
of logits with the lexicon and without it, in turns; the difference of their medians is what the lexicon costs. With
another checkout of this project, such as an older one, its command takes turns with the others.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from workbench.decoding.ctc_beam import read_lexicon
from workbench.decoding.ctc_beam.lexicon_automaton import LexiconAutomaton

ROOT = Path(__file__).resolve().parent.parent
TOKENS = ("<blk>", *"abcdefghijklmnopqrstuvwxyz", "|")
SHORTEST, LONGEST = 2, 10  # letters of a word
FRAMES = 20


def write_files(folder: Path, words: int, seed: int = 0) -> None:
    """Writes `lexicon.txt` with so many distinct words, `tokens.txt` and `logits.npy`; each word ends with `|`."""
    rng = np.random.default_rng(seed)
    letters = np.array(TOKENS[1:-1])
    chances = rng.dirichlet(np.full(len(letters), 0.7))  # uneven, so that words share their beginnings
    distinct: dict[str, None] = {}
    while len(distinct) < words:
        drawn = rng.choice(letters, size=(words, LONGEST), p=chances)
        lengths = rng.integers(SHORTEST, LONGEST + 1, size=words)
        distinct |= dict.fromkeys("".join(row[:length]) for row, length in zip(drawn, lengths))
    lines = [f"{word}\t{' '.join(word)} |\n" for word in list(distinct)[:words]]
    (folder / "lexicon.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "tokens.txt").write_text("\n".join(TOKENS), encoding="utf-8")
    np.save(folder / "logits.npy", rng.normal(scale=3.0, size=(FRAMES, len(TOKENS))).astype(np.float32))


def command_seconds(folder: Path, checkout: Path, with_lexicon: bool) -> float:
    """Returns the seconds of `workbench decode` of a checkout on the files in the folder."""
    command = [sys.executable, "-m", "workbench", "decode", "logits.npy", "--tokens", "tokens.txt"]
    options = ["--lexicon", "lexicon.txt"] if with_lexicon else []
    started = time.perf_counter()
    subprocess.run(
        [*command, *options],
        check=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def part_seconds(folder: Path) -> tuple[float, float]:
    """Returns the seconds to read the lexicon in the folder, and to make its automaton."""
    started = time.perf_counter()
    lexicon = read_lexicon(folder / "lexicon.txt", TOKENS)
    read = time.perf_counter()
    LexiconAutomaton(lexicon, len(TOKENS))
    return read - started, time.perf_counter() - read


def main() -> None:
    """Prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--other", type=Path, metavar="CHECKOUT", help="another checkout of this project to compare with"
    )
    arguments = parser.parse_args()
    runs = {"without a lexicon": (ROOT, False), "with it": (ROOT, True)}
    if arguments.other:
        runs["with it, the other checkout"] = (arguments.other.resolve(), True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_files(folder, arguments.words)
        for checkout, with_lexicon in runs.values():
            command_seconds(folder, checkout, with_lexicon)  # the first fills the disk cache and compiles
        turns = [
            [command_seconds(folder, checkout, with_lexicon) for checkout, with_lexicon in runs.values()]
            for _ in range(arguments.rounds)
        ]
        parts = [part_seconds(folder) for _ in range(arguments.rounds)]
    print(f"{arguments.words} words, medians of {arguments.rounds}")
    for name, seconds in zip(runs, zip(*turns), strict=True):
        print(f"workbench decode {name:28} {statistics.median(seconds):6.2f} s")
    for name, seconds in zip(("reading the lexicon", "making its automaton"), zip(*parts), strict=True):
        print(f"{name:45} {statistics.median(seconds):6.2f} s")


if __name__ == "__main__":
    main()
