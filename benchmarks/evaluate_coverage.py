"""How often the intervals of `workbench evaluate` hold the truth: `python -m benchmarks.evaluate_coverage`.

Corpora are made up of speakers who differ: each has an error probability of its own, and those of two models are
related. The truth is known: the rate over all speakers who could be drawn. An honest 95 % interval holds it in 93 to
97 % of the corpora.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from workbench.evaluation.statistics import blocks_of, differences, rate_intervals

WORDS = (3, 12)  # of a recording
SPREAD = (2.0, 18.0)  # of the speakers' error probabilities: a beta distribution, 10 % on average
WORSE = 1.2  # the second model's probability, relative to the first's


@dataclass(frozen=True)
class Coverage:
    """The shares of corpora whose interval holds the truth."""

    rate: float
    difference: float
    width: float  # of the rate's interval, on average, as a fraction


def simulate(corpora: int, speakers: int, recordings: int, draws: int, seed: int) -> Coverage:
    """Returns how often the intervals of a rate and of a paired difference hold the truth."""
    source = np.random.default_rng(seed)
    truth = SPREAD[0] / sum(SPREAD)
    covered, covered_pairs, width = 0, 0, 0.0
    names = [f"{speaker}" for speaker in range(speakers) for _ in range(recordings)]
    blocks = blocks_of(names)
    for number in range(corpora):
        hard = np.repeat(source.beta(*SPREAD, speakers), recordings)
        words = source.integers(*WORDS, len(names))
        errors = np.stack([source.binomial(words, hard), source.binomial(words, np.minimum(WORSE * hard, 1))], axis=1)
        units = np.stack([words, words], axis=1).astype(float)
        interval = rate_intervals(errors[:, :1], units[:, :1], blocks, draws=draws, seed=number)[0]
        [pair] = differences(["a", "b"], errors.astype(float), units, blocks, draws=draws, seed=number)
        assert None not in (interval.low, interval.high, pair.low, pair.high)
        covered += interval.low <= truth <= interval.high  # type: ignore[operator]
        covered_pairs += pair.low <= (WORSE - 1) * truth <= pair.high  # type: ignore[operator]
        width += interval.high - interval.low  # type: ignore[operator]
    return Coverage(covered / corpora, covered_pairs / corpora, width / corpora)


def main() -> None:
    """Prints the shares for several numbers of speakers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", type=int, default=4000)
    parser.add_argument("--recordings", type=int, default=5, help="of each speaker")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=24)
    options = parser.parse_args()
    print(f"{'speakers':>8}  {'rate':>7}  {'difference':>10}  {'width':>7}")
    for speakers in (5, 10, 20, 50, 100, 200):
        coverage = simulate(options.corpora, speakers, options.recordings, options.draws, options.seed)
        print(f"{speakers:8}  {coverage.rate:7.1%}  {coverage.difference:10.1%}  {coverage.width:7.2%}")


if __name__ == "__main__":
    main()
