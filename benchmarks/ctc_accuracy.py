"""The gain of a beam search with a language model and a list of phrases: demo/sensevoice on telephone numbers in noise.

The numbers are of the grammar of `assets/decoding/telephone.arpa.gz`, drawn with a seed that neither the model's text
nor the list of phrases has. The speaker is not in the recogniser's training data; `--takes` chooses half of the takes
of each digit, so that options can be chosen on one half and measured on the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.registry.sources import assets
from workbench.text.rates import pool_scores, score
from workbench.training.data.digits import Take, load_fsdd, split_by_speaker, words_of
from workbench.training.data.take_bank import TakeBank
from workbench.training.data.telephone import draw_numbers, found_numbering_plan
from workbench.training.decoding_samples import LISTED, LISTED_SEED, TRAINING_SEED
from workbench.training.evaluation import GAP_SECONDS, LEAD_SECONDS, assemble, in_white_noise

MODEL = "demo/sensevoice"
TAKES = ("even", "odd")
Number = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A recording of a spoken number in noise."""

    text: str
    samples: np.ndarray
    listed: bool  # whether it is in the list of phrases


def main() -> None:
    """Prints a line for each way of decoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--held-out", help="the speaker (default: the last in alphabetical order)")
    parser.add_argument("--count", type=int, default=150, help="numbers of each kind: listed and others (default: 150)")
    parser.add_argument("--snr", type=float, default=5.0, help="decibels of speech over white noise (default: 5)")
    parser.add_argument("--seed", type=int, default=5, help=f"not {TRAINING_SEED} or {LISTED_SEED} (default: 5)")
    parser.add_argument("--takes", choices=TAKES, default="odd", help="which takes to use (default: odd)")
    parser.add_argument("--runtime", default="pytorch")
    parser.add_argument("--beam-size", type=int, default=16)
    parser.add_argument("--alpha", type=float, default=0.8, help="weight of the language model (default: 0.8)")
    parser.add_argument("--boost-score", type=float, default=0.4, help="bonus for each token of a listed number")
    options = parser.parse_args()
    if options.seed in (TRAINING_SEED, LISTED_SEED):
        parser.error(f"seed {options.seed} is that of the language model's text or of the list; expected another")
    _, takes = split_by_speaker(load_fsdd(options.data), options.held_out)
    selected = [take for take in takes if take.number % 2 == TAKES.index(options.takes)]
    calls = draw_calls(selected, options.count, options.snr, options.seed)
    print(
        f"{MODEL} on {options.runtime}: {options.count} listed numbers and {options.count} others in white noise at "
        f"{options.snr:g} dB, {selected[0].speaker}, {options.takes} takes, seed {options.seed}"
    )
    beam = {"beam_size": options.beam_size}
    model = {"lm": str(assets() / "decoding" / "telephone.arpa.gz"), "alpha": options.alpha}
    boost = {"boost": str(assets() / "decoding" / "telephone_list.txt"), "boost_score": options.boost_score}
    ways: Mapping[str, Mapping[str, Any]] = {
        "greedy": {},
        "beam": beam,
        "beam, model": {**beam, **model},
        "beam, list": {**beam, **boost},
        "beam, model, list": {**beam, **model, **boost},
    }
    with Registry() as registry, registry.open(MODEL, runtime=options.runtime) as session:
        _print_table(session, calls, ways)


def draw_calls(takes: Sequence[Take], count: int, snr_db: float, seed: int) -> list[Call]:
    """Returns `count` calls to listed numbers, and as many to numbers outside the list."""
    country = found_numbering_plan()
    listed = draw_numbers(country, LISTED, LISTED_SEED)
    others = [number for number in draw_numbers(country, 2 * count, seed) if number not in listed][:count]
    choose = np.random.default_rng([seed, 0])
    numbers = [*(listed[int(choose.integers(len(listed)))] for _ in range(count)), *others]
    bank = TakeBank.of(takes)
    return [
        Call(words_of(number), _say(bank, number, snr_db, np.random.default_rng([seed, 1, place])), number in listed)
        for place, number in enumerate(numbers)
    ]


def _say(bank: TakeBank, number: Number, snr_db: float, rng: np.random.Generator) -> np.ndarray:
    """Returns the samples of a number at 16 kHz."""
    chosen = [
        int(rng.choice([take for take, digits in enumerate(bank.digits) if digits == (digit,)])) for digit in number
    ]
    before, after = rng.uniform(*LEAD_SECONDS, 2).tolist()
    string = assemble(bank, chosen, rng.uniform(*GAP_SECONDS, len(chosen) - 1).tolist(), (before, after), rng)
    return in_white_noise(string, snr_db, rng).samples


def _print_table(session: OpenSession, calls: Sequence[Call], ways: Mapping[str, Mapping[str, Any]]) -> None:
    print(f"{'':20}{'word errors':>12}{'fewer':>8}{'listed found':>14}{'others found':>14}")
    first = None
    for name, options in ways.items():
        texts = [session.transcribe((call.samples, SAMPLE_RATE), **options).text for call in calls]
        counts = pool_scores([score(call.text, text) for call, text in zip(calls, texts, strict=True)])
        assert counts.wer is not None  # the references are not empty
        first = counts.wer if first is None else first
        correct = {
            listed: [call.text == text for call, text in zip(calls, texts, strict=True) if call.listed == listed]
            for listed in (True, False)
        }
        shares = "".join(f"{f'{sum(each)} of {len(each)}':>14}" for each in correct.values())
        print(f"{name:20}{counts.wer:>12.2%}{1 - counts.wer / first:>8.0%}{shares}", flush=True)


if __name__ == "__main__":
    main()
