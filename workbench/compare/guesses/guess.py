"""A guess, and its data: one stage of both sides, and the other stages of both traces.

A guess predicts rows of the candidate from the reference. A guess is reported only if its prediction equals the
candidate to within rounding. So a wrong guess does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

FILTER_BANK = "frontend.fbank"  # the stage of the log-mel filter bank
SAMPLE_VALUES = 1 << 17  # number of values on which a guess is first tried
BLOCK_VALUES = 1 << 20  # values at a time when a guess is tried on all rows
_MIN_ROWS = 16
_FEW_SHARE, _CONTIGUOUS_SHARE = 0.1, 0.4  # of all places, anywhere or side by side
_LISTED = 8  # places that a sentence lists
_LARGE = 1 << 14  # values, of which a few rows are compared first: each of so many
_EACH_OF_MANY = 16

Rows = np.ndarray
"""Indices of rows (axis 0) of the candidate."""


@dataclass(frozen=True)
class Hint:
    """What would explain a stage that is wrong."""

    kind: str  # such as "other stage", "factor", "halves interleaved", "epsilon"
    stage: str
    sentence: str  # without capital letter and full stop; "it" is the candidate's stage
    remaining: float  # relative L2 between the candidate and what the explanation predicts
    error: float  # relative L2 between the candidate and the reference


@dataclass(frozen=True)
class Guess:
    """One explanation."""

    kind: str
    words: str  # a predicate whose subject "it" is the candidate's stage
    expected: Callable[[Rows], np.ndarray]  # what the candidate would hold in these rows, in float64
    first: int = 0  # it predicts the rows from `first` on
    last: int | None = None  # and before `last`; None for all
    option: str = ""  # takes the place of {} in `words`; guesses that differ in it alone may be named together
    is_verified: bool = False  # whether the guess was already verified; then it predicts nothing


class Linear(NamedTuple):
    """The parameters of a linear layer."""

    weight: np.ndarray  # [out, in]
    bias: np.ndarray | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Returns the products [rows, out] of rows [rows, in], in float64."""
        product: np.ndarray = x @ np.asarray(self.weight, np.float64).T
        return product if self.bias is None else product + np.asarray(self.bias, np.float64)


LinearLayers = Callable[[Sequence[str]], Mapping[str, Linear]]
"""Returns the linear layer of the reference behind each stage, if it is known."""


@dataclass(frozen=True)
class Scene:
    """A stage that is wrong, and what is known about it.

    The other stages are read on access. `before` and `after` name stages of numbers that both traces have, the nearest
    one first.
    """

    stage: str
    reference: np.ndarray
    candidate: np.ndarray
    allowed: float  # relative L2 that counts as rounding
    reference_stages: Mapping[str, np.ndarray] = field(default_factory=dict)
    candidate_stages: Mapping[str, np.ndarray] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()  # stages of numbers that the candidate does not have
    roundoff: float = 2.0**-24  # unit roundoff of the arithmetic that is expected
    samples: np.ndarray | None = None  # of the sound, mono with full scale 1 at 16 kHz, if it is known
    recorded: tuple[np.ndarray, int] | None = None  # samples [n, channels] of the sound at its own rate, and that rate
    layers: LinearLayers | None = None  # the reference's linear layers, if they can be read
    inputs_of: str | None = None  # "reference" or "candidate", if both sides computed the stage from that side's inputs

    @cached_property
    def sample(self) -> Rows:
        """Rows on which guesses are tried first, spread over the stage."""
        count = len(self.candidate)
        width = max(self.candidate.size // max(count, 1), 1)
        sample_count = min(count, max(_MIN_ROWS, SAMPLE_VALUES // width))
        return np.unique(np.linspace(0, count - 1, sample_count).round().astype(int))

    @cached_property
    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        """The sample rows of both sides as tables [rows, channels] in float64."""
        return table(self.reference[self.sample]), table(self.candidate[self.sample])

    @property
    def part(self) -> str:
        """The last word of the stage's name."""
        return self.stage.rpartition(".")[2]

    @property
    def widths(self) -> list[int]:
        """The widths of this stage and of its neighbours: what a scale may depend on."""
        neighbour_shapes = [self.reference_stages[each].shape for each in (*self.before[:4], *self.after[:4])]
        shapes = [self.reference.shape, *(shape for shape in neighbour_shapes if len(shape) > 1)]
        return list(dict.fromkeys(width for shape in shapes for width in shape[:0:-1] if width > 1))

    def input_named(self, *parts: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns an earlier part of the same layer on both sides: `mlp.gate` for `llm.layers.0.mlp.activation`."""
        for name in self.before:
            if any(name.endswith(f".{each}") and self.stage.startswith(name[: -len(each)]) for each in parts):
                return self.entered(name)
        return None

    def inputs(self, limit: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """Returns the nearest earlier stages of the same shape: name, and both sides."""
        stages = list[tuple[str, np.ndarray, np.ndarray]]()
        for name in self.before:
            if len(stages) == limit:
                break
            if self.reference_stages[name].shape == self.reference.shape == self.candidate_stages[name].shape:
                stages.append((name, *self.entered(name)))
        return stages

    def entered(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns an earlier stage as it entered the computation of the reference and of the candidate."""
        reference_stages = self.candidate_stages if self.inputs_of == "candidate" else self.reference_stages
        candidate_stages = self.reference_stages if self.inputs_of == "reference" else self.candidate_stages
        return reference_stages[name], candidate_stages[name]


def table(rows: np.ndarray) -> np.ndarray:
    """Returns rows of a stage as [rows, channels] in float64; axes after the first are joined."""
    values: np.ndarray = np.asarray(rows, np.float64).reshape(len(rows), -1)
    return values


def relative_l2(expected: np.ndarray, values: np.ndarray) -> float:
    """Returns the relative L2 of the difference; infinite if anything is not finite or nothing is expected."""
    with np.errstate(all="ignore"):
        size = float(np.linalg.norm(expected))
        error = float(np.linalg.norm(np.asarray(values, np.float64) - expected))
    return error / size if size > 0 and np.isfinite(error) else np.inf


def remaining(guess: Guess, candidate: np.ndarray, sample: Rows, allowed: float) -> float:
    """Returns the remaining relative L2 under a guess: that of the sample if it is already too large, otherwise of all
    rows.
    """
    if guess.is_verified:
        return 0.0
    last = len(candidate) if guess.last is None else guess.last
    rows = sample[(sample >= guess.first) & (sample < last)]
    if not len(rows):
        return np.inf
    with np.errstate(all="ignore"):
        tried = relative_l2(guess.expected(rows), table(candidate[rows]))
        if not tried <= 2 * allowed or len(rows) == last - guess.first:
            return tried
        width = max(candidate.size // len(candidate), 1)
        error = size = 0.0
        for start in range(guess.first, last, max(1, BLOCK_VALUES // width)):
            block = np.arange(start, min(last, start + max(1, BLOCK_VALUES // width)))
            expected = guess.expected(block)
            error += float(np.square(table(candidate[block]) - expected).sum())
            size += float(np.square(expected).sum())
    return float((error / size) ** 0.5) if size > 0 and np.isfinite(error) else np.inf


def remainder_clause(share: float) -> str:
    """Returns in words what an explanation leaves unexplained, given that as a relative L2."""
    return f"a difference of {100 * share:.2g} % remains" if share else "nothing else differs"


def is_close(expected: np.ndarray, values: np.ndarray, allowed: float) -> bool:
    """Returns whether the relative L2 of the difference of two arrays is at most the allowed error."""
    return not _is_far(expected, values, allowed) and relative_l2(expected, values) <= allowed


def _is_far(expected: np.ndarray, values: np.ndarray, allowed: float) -> bool:
    """Returns whether a few rows differ by more than all rows together may. Most guesses are wrong in every row, and
    this takes a fraction of the time.
    """
    if expected.size < _LARGE or expected.shape != values.shape:
        return False
    few = slice(None, None, _EACH_OF_MANY)
    with np.errstate(all="ignore"):
        error = np.linalg.norm(np.asarray(values[few], np.float64) - expected[few])
        return bool(error > allowed * np.linalg.norm(expected))


def units_of(stage: str, dimensions: int) -> tuple[str, str]:
    """Returns what the first and the last axis of a stage count: rows and channels, heads and keys, or one of them."""
    part = stage.rpartition(".")[2]
    if dimensions == 1:
        unit = "sample" if part == "audio" else "value"
        return unit, unit
    return ("head", "key") if part == "weights" and dimensions == 3 else ("row", "channel")


def is_range(places: np.ndarray) -> bool:
    """Returns whether places in ascending order stand side by side."""
    return bool(len(places)) and int(places[-1] - places[0]) == len(places) - 1


def is_few(places: np.ndarray, count: int) -> bool:
    """Returns whether places in ascending order are few of all, or stand side by side, as padding or a head does."""
    return len(places) <= (_CONTIGUOUS_SHARE if is_range(places) else _FEW_SHARE) * count


def is_dense(places: np.ndarray) -> bool:
    """Returns whether many places in ascending order take at least two thirds of their range."""
    return len(places) > _LISTED and int(places[-1] - places[0]) < 1.5 * len(places)


def listed(places: np.ndarray) -> str:
    """Returns places in ascending order in words: `3, 9, 10`, or `4 to 12`."""
    if len(places) > 3 and is_range(places):
        return f"{places[0]} to {places[-1]}"
    return in_order(places)


def named(unit: str, places: np.ndarray) -> str:
    """Returns places in ascending order in words, with what they count: `row 3`, or `rows 4 to 12`."""
    return f"{unit} {places[0]}" if len(places) == 1 else f"{unit}s {listed(places)}"


def in_order(places: np.ndarray, limit: int = _LISTED) -> str:
    """Returns the first places in words, in their own order."""
    listing = ", ".join(map(str, places[:limit].tolist()))
    return f"{listing} and {len(places) - limit} more" if len(places) > limit else listing
