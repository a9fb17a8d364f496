"""Guesses at sinusoidal positions that are added to an input: left out, scaled, counted from another number, in another
layout.

The rest of the input drops out of the difference of both sides, so two ways of computing positions explain it or not.
Where the rows of an earlier stage follow other rows, such as a prompt's, these rows may have a fault of their own, and
the earlier stage may also lack its factor.
Sources: Vaswani et al. 2017; tensor2tensor, whose rates end at 1/10000, as those of SAN-M and Whisper do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, table
from workbench.compare.guesses.stages import addend_words, of_this_width

_LAYOUTS = {
    "halves": "sines in the first half and cosines in the second",
    "cosines first": "cosines in the first half and sines in the second",
    "interleaved": "sines and cosines in turn",
}
_FIRSTS = (1, 0, 2, -1)
_BASES = (100.0, 1000.0, 20000.0, 50000.0, 100000.0, 500000.0, 1000000.0)
_CLOSE = 1e-4  # relative difference of a factor from a known one
_TINY = 1e-30  # a sum of squares that is no less
_TRIED_ROWS = 8  # a guess is tried on them first, then on all rows as any guess is


@dataclass(frozen=True)
class _Positions:
    """A way of computing positions."""

    first: int
    layout: str
    steps_less: int  # the rates fall to one over the base in width / 2 - `steps_less` steps
    base: float = 10000.0

    def __call__(self, rows: Rows, width: int) -> np.ndarray:
        half_width = width // 2
        rates = self.base ** (-np.arange(half_width) / max(half_width - self.steps_less, 1))
        angles = (rows[:, None] + self.first) * rates
        parts = np.sin(angles), np.cos(angles)
        if self.layout == "interleaved":
            return np.stack(parts, axis=-1).reshape(len(rows), width)
        return np.concatenate(parts[::-1] if self.layout == "cosines first" else parts, axis=1)


def positions(scene: Scene) -> Iterator[Guess]:
    """Yields other positions, where the two sides differ by two ways of computing them."""
    if scene.part != "input" or scene.reference.ndim != 2 or scene.reference.shape[1] % 2 or len(scene.reference) < 3:
        return
    yield from _other_positions(scene)
    for name, earlier_stage, first_row in of_this_width(scene):
        yield from _other_positions(scene, name, earlier_stage, first_row)


def _other_positions(
    scene: Scene, name: str = "", earlier_stage: np.ndarray | None = None, first_row: int = 0
) -> Iterator[Guess]:
    """Yields other positions from a row on, by themselves or together with another factor of the stage added there."""
    places = np.flatnonzero(scene.sample >= first_row)
    if len(places) < 3:
        return
    places = places[np.unique(np.linspace(0, len(places) - 1, _TRIED_ROWS).round().astype(int))]
    r, c = (side[places] for side in scene.pair)
    width, rows = r.shape[1], scene.sample[places]
    difference = c - r
    rounding_error = 8 * scene.allowed * float(np.linalg.norm(c))  # what rounding leaves of the difference
    size = float(np.linalg.norm(difference))
    if not rounding_error < 0.1 * size:
        return
    part = None if earlier_stage is None else table(earlier_stage[rows - first_row])
    for reference in (
        _Positions(first, layout, less) for first in _FIRSTS[:2] for layout in _LAYOUTS for less in (1, 0)
    ):
        reference_values = reference(rows, width)
        scaled = _scaled(reference, reference_values, difference) if part is None else ()
        for words, alternative, times in (*_alternatives(reference), *scaled):
            change = (times * alternative(rows, width) if alternative else 0.0) - reference_values
            share = 0.0
            if part is not None:
                share = float((part * (difference - change)).sum()) / max(float((part * part).sum()), _TINY)
                change = change + share * part
            if not is_close(change, difference, rounding_error / size):
                continue

            def expected(
                rows: Rows,
                reference: _Positions = reference,
                candidate: _Positions | None = alternative,
                times: float = times,
                share: float = share,
            ) -> np.ndarray:
                candidate_addend = times * candidate(rows, width) if candidate else 0.0
                values = table(scene.reference[rows]) + candidate_addend - reference(rows, width)
                if earlier_stage is not None:
                    values += share * table(earlier_stage[rows - first_row])
                return values

            if part is not None:
                is_added_alike = abs(share) * float(np.linalg.norm(part)) <= rounding_error
                start = f"from row {first_row} on" if first_row else ""
                about_part = start if is_added_alike else f"{addend_words(scene, name, share, first_row)[1]}, and"
                words = f"{about_part} {words}".strip()
            yield Guess("positions", words, expected, first_row)


def _scaled(
    reference: _Positions, values: np.ndarray, difference: np.ndarray
) -> Iterator[tuple[str, _Positions | None, float]]:
    """Yields the factor of the positions that comes nearest to the difference, as `_alternatives` does."""
    times = float(f"{1 + float((difference * values).sum() / (values * values).sum()):.6g}")
    root = math.sqrt(values.shape[1])
    known = {f"√{values.shape[1]}, the root of the width": root, f"1/√{values.shape[1]}": 1 / root}
    clause = next((f" ({name})" for name, each in known.items() if abs(times / each - 1) < _CLOSE), "")
    yield f"its positions are multiplied by {times:.4g}{clause}", reference, times


def _alternatives(reference: _Positions) -> Iterator[tuple[str, _Positions | None, float]]:
    """Yields what a port may compute instead: words, positions, and their factor."""
    yield "its positions are not added", None, 0.0
    yield "its positions are added twice", reference, 2.0
    yield "its positions are subtracted", reference, -1.0
    for first in _FIRSTS:
        if first != reference.first:
            sentence = f"its positions are counted from {first}, where the reference counts from {reference.first}"
            yield sentence, replace(reference, first=first), 1.0
    for layout, words in _LAYOUTS.items():
        if layout != reference.layout:
            sentence = f"its positions have {words}, where the reference has {_LAYOUTS[reference.layout]}"
            yield sentence, replace(reference, layout=layout), 1.0
    for base in _BASES:
        sentence = f"its positions have the base {base:.0f}, where the reference has {reference.base:.0f}"
        yield sentence, replace(reference, base=base), 1.0
    other_steps_less = 1 - reference.steps_less
    steps = ("half the width", "half the width less one")
    sentence = (
        f"the steps of its rates are {steps[other_steps_less]}, where the reference's are {steps[1 - other_steps_less]}"
    )
    yield sentence, replace(reference, steps_less=other_steps_less), 1.0
