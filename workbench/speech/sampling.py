"""Chooses the next id of each stream from logits.

The draw of a stream depends on the seed, the step and the stream, not on what was drawn before. So every runtime draws
the same from the same logits, and generation can resume at any step. The uniform numbers are those of Philox4x64-10
(Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011) with the seed as key and the step in the counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from workbench.speech.network import Scores

BLOCK = 64  # steps whose uniform numbers are computed together


def apply_guidance(scores: Scores, cfg: float) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns logits [ids] of stream 0 and [streams - 1, layer size] of the others, with guidance if there is a null
    branch: cfg * conditional + (1 - cfg) * null.

    Each id is mixed by itself, so forbidden ids may be left out before or after.
    """
    return _guided(scores.main, cfg), None if scores.codec is None else _guided(scores.codec, cfg)


def _guided(logits: np.ndarray, cfg: float) -> np.ndarray:
    if len(logits) == 1:
        first: np.ndarray = logits[0]
        return first
    mixed: np.ndarray = np.float32(cfg) * logits[0] + np.float32(1 - cfg) * logits[1]
    return mixed


def uniforms(seed: int, step: int, streams: int) -> np.ndarray:
    """Returns one number from 0 to 1 (exclusive) for each stream: float64 [streams].

    They are words of Philox4x64 in order, 53 high bits each. The counter of the first is (1, step, 0, 0), as numpy
    increments before it computes.
    """
    numbers: np.ndarray = _uniforms(seed, step // BLOCK, streams)[step % BLOCK]
    return numbers


@lru_cache(maxsize=64)
def _uniforms(seed: int, block: int, streams: int) -> np.ndarray:
    """Returns the numbers of a block of steps [BLOCK, streams], read only. Step by step they would take ten times as
    long.
    """
    generator = np.random.Philox(key=seed)
    state: Any = generator.state
    random_bits = np.empty((BLOCK, streams), dtype=np.uint64)
    for number in range(BLOCK):
        state["state"]["counter"][:] = 0, block * BLOCK + number, 0, 0
        generator.state = state
        random_bits[number] = generator.random_raw(streams)
    numbers: np.ndarray = (random_bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    numbers.flags.writeable = False
    return numbers


@dataclass(frozen=True, eq=False)
class Draw:
    """The chosen column of each row, and the values from which it was chosen."""

    columns: np.ndarray  # int64 [rows]
    values: np.ndarray | None = None  # float32 [rows, candidates], logits from the largest down; None without a draw
    weights: np.ndarray | None = None  # float64 [rows, candidates], proportional to the probabilities of the draw
    numbers: np.ndarray | None = None  # float64 [rows], the random numbers of the draw
    places: np.ndarray | None = None  # int64 [rows], the place of the chosen candidate

    @property
    def temperatures(self) -> np.ndarray:
        """The temperature of each row: float64 [rows]; 0 where the largest logit was taken.

        A weight is exp(logit / temperature), so two logits and their weights give the temperature. They are those of
        the likeliest candidate and of the least likely one with a weight. NaN if all are equally likely.
        """
        if self.values is None or self.weights is None:
            return np.zeros(len(self.columns))
        last = (self.weights > 0).sum(axis=1)[:, None] - 1
        ends = [np.take_along_axis(each, last, axis=1)[:, 0] for each in (self.values, self.weights)]
        difference = self.values[:, 0].astype(np.float64) - ends[0]
        logs = np.log(self.weights[:, 0]) - np.log(ends[1])
        return np.divide(difference, logs, out=np.full(len(difference), np.nan), where=logs != 0)

    @property
    def candidates(self) -> np.ndarray:
        """The number of ids from which each row was drawn: int64 [rows]; 1 where the largest logit was taken."""
        if self.values is None:
            return np.ones(len(self.columns), dtype=np.int64)
        return np.isfinite(self.values).sum(axis=1)

    @property
    def rooms(self) -> np.ndarray:
        """How far the random number of each row may move without a new choice: float64 [rows]; NaN without a draw."""
        if self.weights is None or self.numbers is None or self.places is None:
            return np.full(len(self.columns), np.nan)
        cumulative = self.weights.cumsum(axis=1)
        ends = np.concatenate([np.zeros((len(cumulative), 1)), cumulative], axis=1) / cumulative[:, -1:]
        low, high = (np.take_along_axis(ends, self.places[:, None] + n, axis=1)[:, 0] for n in (0, 1))
        # Beyond the first and the last share, nothing else can be chosen.
        room_below = np.where(low <= 0, np.inf, self.numbers - low)
        room_above = np.where(high >= 1, np.inf, high - self.numbers)
        smallest: np.ndarray = np.minimum(np.minimum(room_below, room_above), 1.0)
        return smallest


def draw(logits: np.ndarray, temperature: float, top_k: int, numbers: np.ndarray | None) -> Draw:
    """Chooses a column of each row.

    Args:
        logits: float32 [rows, ids]; minus infinity for ids that a row does not have.
        temperature: 0 takes the largest logit, the first of several.
        top_k: draws among this many largest logits, of equal ones the first; 0 draws among all.
        numbers: from 0 to 1, one for each row. The draw takes the candidates from the largest logit down, and chooses
            the first whose cumulative probability exceeds the row's number.
    """
    if temperature == 0 or numbers is None:
        return Draw(logits.argmax(axis=1))
    columns, values = _largest(logits, top_k)
    weights = np.exp((values - values[:, :1]).astype(np.float64) / temperature)
    cumulative = weights.cumsum(axis=1)
    passed_count = (cumulative <= numbers[:, None] * cumulative[:, -1:]).sum(axis=1)
    last = (weights > 0).sum(axis=1) - 1  # by rounding, a number may pass all of them
    places = np.minimum(passed_count, last)
    return Draw(columns[np.arange(len(columns)), places], values, weights, numbers, places)


def likeliest(logits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the columns and the logits of each row's `count` largest, both [rows, min(count, ids)], from the largest
    down. The logits are minus infinity for columns that a row does not have.
    """
    columns, values = _largest(logits, count)
    return columns[:, :count], values[:, :count]


def log_total(logits: np.ndarray) -> np.ndarray:
    """Returns log sum exp of each row: float64 [rows, 1]."""
    largest = logits.max(axis=1, keepdims=True).astype(np.float64)
    totals: np.ndarray = largest + np.log(np.exp(logits - largest).sum(axis=1, keepdims=True))
    return totals


def _largest(logits: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the columns of the largest logits of each row, from the largest down, and their values.

    Equal ones are in the order of their columns: the keys that are sorted hold the value above and the column below.
    """
    columns = np.arange(logits.shape[1])
    if 0 < top_k < len(columns):
        place = len(columns) - top_k
        threshold = np.partition(logits, place, axis=1)[:, place, None]
        columns = np.flatnonzero((logits >= threshold).any(axis=0))  # few, so that what follows is quick
    values = logits[:, columns]
    count = len(columns)
    bits = (np.asarray(values, dtype=np.float32) + np.float32(0)).view(np.uint32)  # without a negative zero
    ordered = np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    keys = ordered << np.uint64(32) | np.uint64(count - 1) - np.arange(count, dtype=np.uint64)
    keys = np.sort(keys, axis=1)[:, ::-1]
    if top_k:
        keys = keys[:, :top_k]
    order = count - 1 - (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return columns[order], values[np.arange(len(values))[:, None], order]


def probability(logits: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Returns the probability of one column of each row among the ids allowed, before temperature and top-k: [rows]."""
    shifted = (logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
    column_logits = np.take_along_axis(shifted, columns[:, None], axis=1)[:, 0]
    probabilities: np.ndarray = np.exp(column_logits) / np.exp(shifted).sum(axis=1)
    return probabilities
