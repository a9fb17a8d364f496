"""Error rates over a grid of two weights, from n-best lists that are kept, with their confidence intervals.

A hypothesis is ranked by `fixed + first * x + second * y`, where x and y are the two weights. So the lists of one
search show which hypothesis each pair of weights ranks first, without another search. This file knows numbers only: no
text, no language model.

The bootstrap over recordings gives the confidence interval of a rate (Bisani and Ney, "Bootstrap estimates for
confidence intervals in ASR performance evaluation", ICASSP 2004): recordings are drawn with replacement many times, and
the middle 95 % of the rates of these draws are the interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.core.phrases import counted

DRAWS = 2000
SEED = 20  # of the draws: the same lists give the same interval
MIN_RECORDINGS = 5  # of fewer, the draws are too much alike for an interval


@dataclass(frozen=True)
class Candidate:
    """A hypothesis of a recording, for any weights."""

    fixed: float  # the part of the score that does not depend on the two weights
    first: float  # what the first weight multiplies, such as ln P of a language model
    second: float  # what the second weight multiplies, such as the number of tokens
    errors: int  # words or characters that differ from the reference


@dataclass(frozen=True)
class NBestList:
    """The hypotheses that the search kept for a recording, and the number of units in the reference."""

    candidates: tuple[Candidate, ...]
    units: int


@dataclass(frozen=True, eq=False)
class WeightSweep:
    """The error rates of a set of recordings, at each pair of weights."""

    first: tuple[float, ...]  # the first weight's values
    second: tuple[float, ...]
    errors: np.ndarray  # int64 [first, second]: over all recordings
    indistinguishable: np.ndarray  # bool [first, second]: the bootstrap cannot tell the pair from the best one
    best: tuple[int, int]  # indices of the pair with the fewest errors; of equal pairs, the one in the middle
    low: float  # the 95 % interval of the best pair's rate
    high: float
    units: int  # words or characters in all references
    recordings: int

    @property
    def rates(self) -> np.ndarray:
        """Errors per unit of the references, float64 [first, second]."""
        rates_per_unit: np.ndarray = self.errors / max(self.units, 1)
        return rates_per_unit

    @property
    def rate(self) -> float:
        """The rate of the best pair."""
        return float(self.rates[self.best])

    @property
    def on_edge(self) -> bool:
        """Whether no pair inside the grid is as good as the best one, so that a wider grid may have a better one."""
        inner_errors = self.errors[1:-1, 1:-1] if min(self.errors.shape) > 2 else self.errors
        is_flat = self.errors.min() == self.errors.max()
        return not is_flat and bool(inner_errors.min() > self.errors[self.best])

    @property
    def doubt(self) -> str:
        """A sentence that says why the set is too small to choose weights with; empty if it is large enough.

        It is too small with fewer than `MIN_RECORDINGS`, or if the bootstrap cannot tell the best pair from more
        than half of all pairs although their rates differ.
        """
        if self.recordings < MIN_RECORDINGS:
            recordings_text = counted(self.recordings, "recording")
            return f"the set is too small: {recordings_text}, and the interval needs at least {MIN_RECORDINGS}"
        if self.errors.min() == self.errors.max():
            return "every pair of weights gives the same rate, so this set says nothing about them"
        share = float(self.indistinguishable.mean())
        if share > 0.5:
            return (
                f"the set is too small: {share:.0%} of all pairs of weights cannot be told from the best one, as the "
                "95 % interval of the difference contains 0"
            )
        return ""


def sweep_weights(
    lists: Sequence[NBestList], first: Sequence[float], second: Sequence[float], draws: int = DRAWS
) -> WeightSweep:
    """Returns the error rates of the lists over the grid of weights.

    Of hypotheses with equal scores, the first in its list counts. Raises `ValueError` for an empty grid, no lists, or
    an empty list.
    """
    if not lists or not first or not second or not all(each.candidates for each in lists):
        raise ValueError("a sweep needs recordings with hypotheses, and a value of each weight")
    table = np.stack([_errors(each, np.asarray(first, float), np.asarray(second, float)) for each in lists])
    units = np.array([each.units for each in lists])
    total = table.sum(axis=0)
    best = _nearest_to_mean(np.argwhere(total == total.min()))
    cells = table.reshape(len(lists), -1)
    draw_counts = np.random.default_rng(SEED).multinomial(len(lists), np.full(len(lists), 1 / len(lists)), size=draws)
    lengths = np.maximum(draw_counts @ units, 1)[:, None]
    rates = draw_counts @ cells / lengths
    best_rates = rates[:, best[0] * len(second) + best[1]]
    low, high = np.quantile(best_rates, (0.025, 0.975))
    like_best = np.quantile(rates - best_rates[:, None], 0.025, axis=0) <= 0
    return WeightSweep(
        tuple(first),
        tuple(second),
        total,
        like_best.reshape(total.shape),
        best,
        float(low),
        float(high),
        int(units.sum()),
        len(lists),
    )


def _errors(n_best: NBestList, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the errors int64 [first, second] of the hypothesis that each pair of weights ranks first."""
    parts = np.array([(each.fixed, each.first, each.second) for each in n_best.candidates])
    errors = np.array([each.errors for each in n_best.candidates])
    lines = parts[:, 0, None] + parts[:, 1, None] * first  # [candidates, first]
    chosen = (lines[:, :, None] + (parts[:, 2, None] * second)[:, None, :]).argmax(axis=0)
    chosen_errors: np.ndarray = errors[chosen]
    return chosen_errors


def _nearest_to_mean(places: np.ndarray) -> tuple[int, int]:
    """Returns the place among [places, 2] that is nearest to their mean: the safest among equals."""
    nearest = np.abs(places - places.mean(axis=0)).sum(axis=1).argmin()
    row, column = places[nearest]
    return int(row), int(column)
