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
from itertools import product

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, in_order, is_close, named, table
from workbench.compare.guesses.parameters import QUERIES
from workbench.compare.guesses.sinusoids import LAYOUTS, laid_out, rates
from workbench.compare.guesses.stages import addend_words, of_this_width
from workbench.core.phrases import enumerated

_FIRSTS = (1, 0, 2, -1)
_STEPS = (2.0, 0.5, 3.0, 4.0, 0.25)  # from row to row, as when frames of another rate are counted
_MAX_BEFORE = 8  # rows in front that may be counted apart, as the queries of SenseVoice
_BASES = (100.0, 1000.0, 20000.0, 50000.0, 100000.0, 500000.0, 1000000.0)
_MAX_VALUES = 1 << 24
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
    step: float = 1.0  # from row to row
    restart: int = 0  # the row from which on they are counted anew
    blank: int = 0  # rows at the beginning that have none
    last: int | None = None  # the last row, if they are counted from there back

    def __call__(self, rows: Rows, width: int) -> np.ndarray:
        counted = rows if self.last is None else self.last - rows
        counted = np.where(counted >= self.restart, counted - self.restart, counted) if self.restart else counted
        angles = (counted[:, None] + self.first) * self.step * rates(width, self.base, self.steps_less)
        is_blank = rows[:, None] < self.blank
        sines, cosines = (np.where(is_blank, 0.0, function(angles)) for function in (np.sin, np.cos))
        return laid_out(sines, cosines, self.layout)


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
        _Positions(first, layout, less) for first in _FIRSTS[:2] for layout in LAYOUTS for less in (1, 0)
    ):
        reference_values = reference(rows, width)
        scaled = _scaled(reference, reference_values, difference) if part is None else ()
        for words, alternative, times in (*_alternatives(reference, len(scene.reference)), *scaled):
            change = (times * alternative(rows, width) if alternative else 0.0) - reference_values
            if not change.any():  # such as first rows without positions, before the rows that are tried
                continue
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


def rows_under_positions(scene: Scene) -> Iterator[Guess]:
    """Yields rows in another order, or scaled rows, to which the positions of their places were added afterwards."""
    if scene.part != "input" or scene.reference.ndim != 2 or scene.reference.shape[1] % 2 or len(scene.reference) < 3:
        return
    if scene.reference.size > _MAX_VALUES:
        return
    count, width = scene.reference.shape
    r, c = table(scene.reference), table(scene.candidate)
    limit = 8 * scene.allowed * float(np.linalg.norm(c)) / math.sqrt(count)
    differing = np.flatnonzero(np.linalg.norm(c - r, axis=1) > limit)
    queries = _queries(scene, differing)
    for reference in (
        _Positions(first, layout, less) for first in _FIRSTS[:2] for layout in LAYOUTS for less in (1, 0)
    ):
        added = reference(np.arange(count), width)
        x, y = r - added, c - added
        for words, changed in (
            *_other_queries(x, y, differing, queries, limit),
            *_moved(x, y, differing, limit),
            *_with_factor(x, y, differing, scene.widths),
        ):
            if is_close(changed, y, 8 * scene.allowed):

                def expected(rows: Rows, values: np.ndarray = changed + added) -> np.ndarray:
                    return values[rows]

                yield Guess("rows under positions", f"before its positions are added, {words}", expected)
                return


def _queries(scene: Scene, differing: np.ndarray) -> np.ndarray | None:
    """Returns the checkpoint's table of queries, if only a few first rows differ; None if there is none."""
    if scene.layers is None or not len(differing) or differing[-1] >= _MAX_BEFORE:
        return None
    queries = scene.layers([QUERIES]).get(QUERIES)
    is_of_width = queries is not None and queries.weight.shape[1] == scene.reference.shape[1]
    return np.asarray(queries.weight, np.float64) if queries and is_of_width else None


def _other_queries(
    x: np.ndarray, y: np.ndarray, differing: np.ndarray, queries: np.ndarray | None, limit: float
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields first rows that are other rows of the table of queries, as SenseVoice's for a language."""
    if queries is None:
        return
    count = int(differing[-1]) + 1
    scaled = queries * _scale_of_queries(x[0], queries)
    numbers = []
    for side in (x, y):
        distances = np.linalg.norm(side[:count, None] - scaled, axis=2)
        if (distances.min(axis=1) > limit).any():
            return
        numbers.append(distances.argmin(axis=1))
    rows = "row 0 is query" if count == 1 else f"rows 0 to {count - 1} are queries"
    in_reference, in_candidate = map(in_order, numbers)
    words = f"its {rows} {in_candidate}, where the reference has {in_reference} (rows of embed.weight, counted from 0)"
    yield words, np.concatenate([scaled[numbers[1]], x[count:]])


def _scale_of_queries(row: np.ndarray, queries: np.ndarray) -> float:
    """Returns the factor by which the query that resembles a row most is multiplied in it."""
    products = queries @ row
    squares = np.square(queries).sum(axis=1)
    best = int((products / np.sqrt(np.maximum(squares, _TINY))).argmax())
    return float(products[best] / max(float(squares[best]), _TINY))


def _moved(x: np.ndarray, y: np.ndarray, differing: np.ndarray, limit: float) -> Iterator[tuple[str, np.ndarray]]:
    """Yields rows of the reference in the candidate's order: a block moved to an end, or a few rows exchanged."""
    for rows in range(1, min(_MAX_BEFORE, len(x) - 1) + 1):
        block = f"{rows} rows stand" if rows > 1 else "row stands"
        for words, changed in (
            (f"its first {block} behind all others", np.roll(x, -rows, axis=0)),
            (f"its last {block} before all others", np.roll(x, rows, axis=0)),
        ):
            if float(np.linalg.norm(changed[0] - y[0])) <= limit:
                yield words, changed
    if not 2 <= len(differing) <= _MAX_BEFORE:
        return
    distances = np.linalg.norm(y[differing][:, None] - x[differing], axis=2)
    sources = distances.argmin(axis=1)
    if (distances.min(axis=1) > limit).any() or sorted(sources) != list(range(len(differing))):
        return
    changed = x.copy()
    changed[differing] = x[differing[sources]]
    places = in_order(differing), in_order(differing[sources])
    yield f"rows {places[0]} hold what the reference has in rows {places[1]}", changed


def _with_factor(
    x: np.ndarray, y: np.ndarray, differing: np.ndarray, widths: list[int]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields rows of the reference times one factor, if a few rows differ, as when only the others are scaled."""
    if not 1 <= len(differing) <= _MAX_BEFORE or not x[differing].any():
        return
    times = float((x[differing] * y[differing]).sum() / np.square(x[differing]).sum())
    if abs(times) < _CLOSE:
        changed = x.copy()
        changed[differing] = 0.0
        yield f"{named('row', differing)} {_verb(differing)} zeros", changed
        return
    names = {1 / math.sqrt(width): f" (1/√{width})" for width in widths}
    names |= {math.sqrt(width): f" (√{width})" for width in widths}
    clause = next((name for value, name in names.items() if abs(times / value - 1) < _CLOSE), "")
    changed = x.copy()
    changed[differing] *= times
    yield f"{named('row', differing)} {_verb(differing)} {times:.5g} times the reference's{clause}", changed


def _verb(places: np.ndarray) -> str:
    return "is" if len(places) == 1 else "are"


def _scaled(
    reference: _Positions, values: np.ndarray, difference: np.ndarray
) -> Iterator[tuple[str, _Positions | None, float]]:
    """Yields the factor of the positions that comes nearest to the difference, as `_alternatives` does."""
    times = float(f"{1 + float((difference * values).sum() / (values * values).sum()):.6g}")
    root = math.sqrt(values.shape[1])
    known = {f"√{values.shape[1]}, the root of the width": root, f"1/√{values.shape[1]}": 1 / root}
    clause = next((f" ({name})" for name, each in known.items() if abs(times / each - 1) < _CLOSE), "")
    yield f"its positions are multiplied by {times:.4g}{clause}", reference, times


def _alternatives(reference: _Positions, count: int) -> Iterator[tuple[str, _Positions | None, float]]:
    """Yields what a port may compute instead: words, positions, and their factor.

    Args:
        count: the number of rows.
    """
    yield "its positions are not added", None, 0.0
    yield "its positions are added twice", reference, 2.0
    yield "its positions are subtracted", reference, -1.0
    for base in _BASES:
        sentence = f"its positions have the base {base:.0f}, where the reference has {reference.base:.0f}"
        yield sentence, replace(reference, base=base), 1.0
    for first, layout, less in product(_FIRSTS, LAYOUTS, (1, 0)):
        other = replace(reference, first=first, layout=layout, steps_less=less)
        if other != reference:
            yield _difference(reference, other), other, 1.0
    for step in _STEPS:
        sentence = f"its positions grow by {step:g} from row to row, where the reference's grow by 1"
        yield sentence, replace(reference, step=step), 1.0
    yield "its positions are counted from the last row back", replace(reference, last=count - 1), 1.0
    for row in range(1, min(_MAX_BEFORE + 1, count)):
        before = f"row{'s' * (row > 1)} before"
        sentence = f"its positions are counted anew from row {row} on, as when they do not count the {before}"
        yield sentence, replace(reference, restart=row), 1.0
        rows = "row has" if row == 1 else f"{row} rows have"
        yield f"its first {rows} no positions", replace(reference, blank=row), 1.0
        sentence = f"its first {rows} no positions, and they are counted from row {row} on"
        yield sentence, replace(reference, blank=row, restart=row), 1.0


def _difference(reference: _Positions, other: _Positions) -> str:
    """Returns the choices of two ways that differ, as a sentence."""
    ours, theirs = (_choices(each) for each in (other, reference))
    differ = [number for number, clause in enumerate(ours) if clause != theirs[number]]
    words = [enumerated([each[number] for number in differ]) for each in (ours, theirs)]
    return f"its positions {words[0]}, where the reference's {words[1]}"


def _choices(positions: _Positions) -> tuple[str, ...]:
    steps = "half the width less one" if positions.steps_less else "half the width"
    return (
        f"have {LAYOUTS[positions.layout]}",
        f"are counted from {positions.first}",
        f"have rates in as many steps as {steps}",
    )
