"""How certain an error rate is: bootstrap intervals of rates, and paired differences between models.

A *block* is a unit that is drawn as a whole: either all recordings of a speaker, because they succeed and fail
together, or one recording. A rate over blocks is the sum of their errors divided by the sum of their reference units,
as `workbench.text.rates` pools them. This file knows counts only: no texts, no models, no files.

The bootstrap draws as many blocks as there are, with replacement, many times; an interval has the percentiles of the
drawn rates as its ends (Efron, "Bootstrap methods: another look at the jackknife", 1979; for error rates of speech
recognition, Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation", 2004). Plain
percentiles are too narrow for few blocks. So the percentiles are moved outward by as much as Student's distribution is
wider than the normal one (the expanded percentile interval of Hesterberg, "What teachers should know about the
bootstrap", 2015). A block without a score does not count for that model or pair. Two models of a pair are measured
on the same draws, so a difference between them is of the same recordings.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np

LEVEL = 0.95  # the probability that an interval contains the true rate
MARGIN = 0.005  # as a rate: a difference below half a point does not count as worse
FEW_BLOCKS = 20  # intervals of fewer blocks contain the true rate less often than they should (benchmarks/RESULTS.md)
MANY_BLOCKS = 10_000  # from here on, Student's distribution is the normal one
MIN_DRAWS, MAX_DRAWS = 2000, 20_000
DRAWN_AT_ONCE = 1 << 22  # blocks that are drawn in one step, to bound the memory
WORK = 400_000_000  # blocks drawn in all, unless that is fewer than `MIN_DRAWS`


@dataclass(frozen=True)
class Interval:
    """A rate as a fraction with its interval. The ends are None if there are fewer than two blocks."""

    rate: float | None
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.rate is None:
            return "not defined"
        if self.low is None or self.high is None:
            return f"{100 * self.rate:.1f} %"
        return f"{100 * self.rate:.1f} % ({_points(self.low)} to {_points(self.high)})"


@dataclass(frozen=True)
class Difference:
    """The rate of model `other` minus that of `base`, on the same recordings.

    The interval holds the differences of all pairs together with the probability LEVEL: each single interval is wider
    if there are several pairs (Bonferroni).
    """

    base: str
    other: str
    recordings: int  # with a score of both, which are compared
    total: int  # recordings of the corpus
    difference: float | None  # a fraction; positive if `other` makes more errors
    low: float | None
    high: float | None
    alike: bool  # both make the same number of errors in every recording with a score of both
    pairs: int

    @property
    def verdict(self) -> str:
        """One of "worse", "better", "not worse", "open", "same", and "unknown" without an interval."""
        if self.difference is None:
            return "unknown"
        if self.alike:
            return "same"
        if self.low is None or self.high is None:
            return "unknown"
        if self.low > 0:
            return "worse"
        if self.high < 0:
            return "better"
        return "not worse" if self.high < MARGIN else "open"

    @property
    def sentence(self) -> str:
        """What the comparison found, in one sentence."""
        other, base = self.other, self.base
        if self.difference is None:
            return f"{other} and {base} have no scored recording in common."
        if self.verdict == "same":
            return f"{other} makes as many errors as {base} on every recording{self._compared}."
        if self.verdict == "unknown":
            return (
                f"It is not known whether {other} is worse than {base}: {self._points}; an interval needs at least two "
                "recordings."
            )
        details = f"{self._points}, {LEVEL * 100:g} % interval {_points(self.low)} to {_points(self.high)}"
        if self.verdict == "open":
            return f"It is open whether {other} is worse than {base}: {details}; more recordings are needed."
        limit_note = f", all of it below {_points(MARGIN)}" if self.verdict == "not worse" else ""
        return f"{other} is {self.verdict} than {base}: {details}{limit_note}."

    @property
    def _points(self) -> str:
        where = f" on the recordings{self._compared}" if self._compared else ""
        return f"difference {_points(self.difference)} points{where}"

    @property
    def _compared(self) -> str:
        """Which recordings are compared, unless all are."""
        return "" if self.recordings == self.total else f" with a score of both ({self.recordings} of {self.total})"


def _points(rate: float | None) -> str:
    """Returns a rate in percentage points, with a second decimal if the first alone would be 0."""
    value = 100 * (rate or 0.0)
    digits = f"{value:.1f}" if abs(value) >= 0.095 or abs(value) < 0.005 else f"{value:.2f}"
    return "0.0" if float(digits) == 0 else digits


@dataclass(frozen=True)
class Blocks:
    """Which recordings belong together.

    `of` [recordings] has the block's number of each recording; `by` is "speakers" or "recordings".
    """

    of: np.ndarray
    count: int
    by: str

    @property
    def about(self) -> str:
        """Returns a sentence on what was drawn, and whether that is too little."""
        sentence = f"Intervals are over {self.count} {self.by}."
        if self.count < 2:
            return f"There are no intervals: they need at least two {self.by} with a score."
        if self.count < FEW_BLOCKS:
            sentence += f" With fewer than {FEW_BLOCKS}, they may be too narrow."
        return sentence


def blocks_of(speakers: Sequence[Hashable | None]) -> Blocks:
    """Returns the blocks of recordings: one for each speaker, and one for each recording whose speaker is not known.

    If all recordings have the same speaker, each recording is a block of its own, because one block has no interval.
    """
    numbers: dict[Any, int] = {}
    of = np.array(
        [
            numbers.setdefault(("", place) if speaker in (None, "") else speaker, len(numbers))
            for place, speaker in enumerate(speakers)
        ],
        dtype=np.int64,
    )
    known_speakers = sum(speaker not in (None, "") for speaker in speakers)
    if known_speakers == 0 or (len(numbers) < 2 and len(speakers) > 1):
        return Blocks(np.arange(len(speakers)), len(speakers), "recordings")
    by = "speakers" if known_speakers == len(speakers) else "speakers, and recordings without one"
    return Blocks(of, len(numbers), by)


def resampled_sums(sums: np.ndarray, draws: int, seed: int = 0) -> np.ndarray:
    """Returns the sums of drawn blocks [draws, columns] of the blocks' own sums [blocks, columns].

    Each draw takes as many blocks as there are, with replacement. The same seed gives the same draws for any columns.
    """
    count = len(sums)
    source = np.random.default_rng(seed)
    resampled = np.empty((draws, sums.shape[1]))
    at_once = max(1, DRAWN_AT_ONCE // max(count, 1))
    for begin in range(0, draws, at_once):
        rows = min(at_once, draws - begin)
        block_numbers = source.integers(0, count, (rows, count), dtype=np.int32)
        block_numbers += (np.arange(rows, dtype=np.int32) * count)[:, None]
        times = np.bincount(block_numbers.ravel(), minlength=rows * count).reshape(rows, count)
        resampled[begin : begin + rows] = times.astype(np.float64) @ sums
    return resampled


def resamples_for(blocks: int, pairs: int = 1) -> int:
    """Returns the number of draws: more for few blocks, and for intervals whose ends are rare.

    At least 20 draws lie beyond either end, if that is not too much work.
    """
    draws = max(MIN_DRAWS, min(MAX_DRAWS, WORK // max(blocks, 1)))
    return min(max(draws, round(40 * pairs / (1 - LEVEL))), MAX_DRAWS)


def _block_sums(columns: np.ndarray, blocks: Blocks) -> np.ndarray:
    """Sums the rows [recordings, columns] of each block."""
    if blocks.by == "recordings":
        return columns
    return np.stack([np.bincount(blocks.of, each, blocks.count) for each in columns.T], axis=1)


def _ends(rates: np.ndarray, outside: float, blocks: int) -> tuple[float | None, float | None]:
    """Returns the ends with `outside` / 2 beyond either of them; draws without a unit do not count."""
    rates = rates[np.isfinite(rates)]
    if not len(rates):
        return None, None
    outside = widened(outside, blocks)
    low, high = np.quantile(rates, (outside / 2, 1 - outside / 2))
    return float(low), float(high)


@functools.cache
def widened(outside: float, blocks: int) -> float:
    """Returns the share of draws to leave beyond the two ends, so that with this many blocks the true share is
    `outside`.

    That is 2 Φ(-t √(n / (n - 1))), with t the quantile of Student's distribution with n - 1 degrees of freedom.
    """
    normal = NormalDist()
    if blocks > MANY_BLOCKS:
        return outside
    # With t = √f tan θ, Student's density becomes cos(θ)^(f - 1), so a finite integral gives its quantile.
    freedom = blocks - 1
    angles = np.linspace(-math.pi / 2, math.pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1)
    cumulative = np.cumsum(density)
    angle = float(np.interp(1 - outside / 2, (cumulative - density / 2) / cumulative[-1], angles))
    return 2 * normal.cdf(-math.sqrt(freedom) * math.tan(angle) * math.sqrt(blocks / freedom))


def _rates(errors: np.ndarray, units: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(units > 0, errors / units, np.nan)


def rate_intervals(
    errors: np.ndarray,
    units: np.ndarray,
    blocks: Blocks,
    *,
    draws: int | None = None,
    seed: int = 0,
) -> list[Interval]:
    """Returns the rate of each model with its interval.

    Args:
        errors: [recordings, models], counts of errors; NaN where a model has no score of a recording.
        units: [recordings, models], the numbers of units in the references; NaN likewise.
        blocks: of the bootstrap, from `blocks_of`.
        draws: how often to resample; by default as often as the level needs (see `resamples_for`).
    """
    scored = np.isfinite(errors) & np.isfinite(units)
    errors_and_units = np.nan_to_num(np.stack([errors, units], axis=2).astype(np.float64))
    intervals = []
    for place, (drawn_sums, count) in enumerate(
        _resampled(list(errors_and_units.swapaxes(0, 1)), list(scored.T), blocks, 1, draws, seed)
    ):
        all_errors, all_units = errors_and_units[:, place].sum(axis=0)
        rate = _pooled(all_errors, all_units, bool(scored[:, place].any()))
        ends: tuple[float | None, float | None] = (None, None)
        if drawn_sums is not None and rate is not None:
            ends = _ends(_rates(drawn_sums[:, 0], drawn_sums[:, 1]), 1 - LEVEL, count)
        intervals.append(Interval(rate, *ends))
    return intervals


def _resampled(
    tables: Sequence[np.ndarray],
    scored: Sequence[np.ndarray],
    blocks: Blocks,
    pairs: int,
    draws: int | None,
    seed: int,
) -> Iterator[tuple[np.ndarray | None, int]]:
    """Yields the drawn sums of each table and the number of its blocks; None for fewer than two.

    Tables with the same blocks are drawn together.

    Args:
        tables: each [recordings, columns].
        scored: for each table, which recordings count, bool [recordings]. Blocks without any are left out.
    """
    is_scored = [_block_sums(each[:, None].astype(np.float64), blocks)[:, 0] > 0 for each in scored]
    numbers_by_blocks: dict[bytes, list[int]] = {}
    for number, each in enumerate(is_scored):
        numbers_by_blocks.setdefault(each.tobytes(), []).append(number)
    drawn_sums: dict[int, np.ndarray | None] = {}
    for numbers in numbers_by_blocks.values():
        block_is_scored = is_scored[numbers[0]]
        count = int(block_is_scored.sum())
        sums = _block_sums(np.concatenate([tables[number] for number in numbers], axis=1), blocks)[block_is_scored]
        has_several_blocks = count > 1
        table_sums = resampled_sums(sums, draws or resamples_for(count, pairs), seed) if has_several_blocks else None
        width = tables[0].shape[1]
        for place, number in enumerate(numbers):
            drawn_sums[number] = None if table_sums is None else table_sums[:, width * place : width * (place + 1)]
    for number, each in enumerate(is_scored):
        yield drawn_sums[number], int(each.sum())


def _pooled(errors: float, units: float, is_scored: bool) -> float | None:
    """Returns the rate of sums as `workbench.text.rates.Counts` has it, and None where nothing is scored."""
    if units:
        return float(errors / units)
    return 0.0 if is_scored and not errors else None


def differences(
    names: Sequence[str],
    errors: np.ndarray,
    units: np.ndarray,
    blocks: Blocks,
    *,
    total: int | None = None,
    draws: int | None = None,
    seed: int = 0,
) -> list[Difference]:
    """Returns the difference between each two models, the earlier one being the base.

    Only recordings with a score of both models count. The other arguments are those of `rate_intervals`.

    Args:
        names: of the models.
        total: recordings of the corpus, if `errors` lacks some that have no score at all.
    """
    pairs = list(combinations(range(len(names)), 2))
    if not pairs:
        return []
    scored = np.isfinite(errors) & np.isfinite(units)
    tables = list(_paired_columns(pairs, errors, units, scored))
    both_scored = [scored[:, first] & scored[:, second] for first, second in pairs]
    outside = (1 - LEVEL) / len(pairs)
    results = []
    for number, (drawn_sums, count) in enumerate(_resampled(tables, both_scored, blocks, len(pairs), draws, seed)):
        first, second = pairs[number]
        table, common = tables[number], int(both_scored[number].sum())
        base, other, of_base, of_other = table.sum(axis=0)
        rates = _pooled(base, of_base, common > 0), _pooled(other, of_other, common > 0)
        difference = None if rates[0] is None or rates[1] is None else rates[1] - rates[0]
        alike = bool(np.array_equal(table[:, 0], table[:, 1]))
        ends: tuple[float | None, float | None] = (None, None)
        if drawn_sums is not None and difference is not None:
            ends = _ends(
                _rates(drawn_sums[:, 1], drawn_sums[:, 3]) - _rates(drawn_sums[:, 0], drawn_sums[:, 2]), outside, count
            )
        results.append(
            Difference(
                names[first],
                names[second],
                common,
                len(errors) if total is None else total,
                difference,
                *ends,
                alike=alike,
                pairs=len(pairs),
            )
        )
    return results


def _paired_columns(
    pairs: Sequence[tuple[int, int]], errors: np.ndarray, units: np.ndarray, scored: np.ndarray
) -> Iterator[np.ndarray]:
    """Yields [recordings, 4] for each pair: errors of both and units of both, zero where one has no score."""
    for first, second in pairs:
        both_scored = scored[:, first] & scored[:, second]
        columns = np.stack([errors[:, first], errors[:, second], units[:, first], units[:, second]], axis=1)
        yield np.where(both_scored[:, None], columns, 0.0).astype(np.float64)


def correction(pairs: int) -> str:
    """Returns a sentence on what was done because there are several pairs; empty for one pair."""
    if pairs < 2:
        return ""
    return (
        f"There are {pairs} pairs, so each interval is wider (Bonferroni): all {pairs} hold together with "
        f"{LEVEL * 100:g} %."
    )
