"""The figures of a report: rates of each model with intervals, speed, and rates of parts of the corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.evaluation.report.columns import Columns
from workbench.evaluation.statistics import LEVEL, Blocks, Difference, Interval, blocks_of, differences, rate_intervals
from workbench.text.rates import RateName

MAX_GROUPS = 30  # of one breakdown; the worst ones are kept
GROUP_DRAWS = 1000  # of an interval in a breakdown
SECONDS = (0.0, 2.0, 5.0, 10.0, 20.0, 30.0)  # where the groups by duration begin
UNITS = (0, 1, 4, 9, 16, 31, 61)  # where the groups by length of the reference begin


@dataclass(frozen=True)
class ModelFigures:
    """One model over the whole corpus."""

    model: str
    done: int  # utterances, failures included
    failed: int
    primary: Interval
    wer: Interval
    cer: Interval
    substitutions: int  # of the primary rate, as the two after it
    deletions: int
    insertions: int
    units: int
    audio_seconds: float
    compute_seconds: float
    cpu_seconds: float | None  # None if the processes of an engine or a server computed
    memory_bytes: int

    @property
    def rtfx(self) -> float | None:
        """Seconds of sound per second of computing; None without a measured time."""
        return self.audio_seconds / self.compute_seconds if self.compute_seconds > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values; rates are fractions."""
        rates = {"rate": self.primary, "wer": self.wer, "cer": self.cer}
        return {
            "model": self.model,
            "done": self.done,
            "failed": self.failed,
            **{name: {"value": each.rate, "low": each.low, "high": each.high} for name, each in rates.items()},
            "substitutions": self.substitutions,
            "deletions": self.deletions,
            "insertions": self.insertions,
            "units": self.units,
            "audio_seconds": round(self.audio_seconds, 3),
            "compute_seconds": round(self.compute_seconds, 3),
            "cpu_seconds": None if self.cpu_seconds is None else round(self.cpu_seconds, 3),
            "rtfx": self.rtfx,
            "memory_bytes": self.memory_bytes or None,
        }


@dataclass(frozen=True)
class Group:
    """A part of the corpus: all recordings of 2 to 5 s, say."""

    name: str
    recordings: int
    intervals: tuple[Interval, ...]  # of each model


@dataclass(frozen=True)
class Breakdown:
    """The corpus in parts, by one property."""

    title: str
    groups: tuple[Group, ...]
    left_out: int = 0  # groups


@dataclass(frozen=True)
class Overview:
    """All figures of a report."""

    rate: RateName  # of the primary rates, which the pairs and breakdowns are about
    models: tuple[ModelFigures, ...]
    pairs: tuple[Difference, ...]
    breakdowns: tuple[Breakdown, ...]
    blocks: Blocks

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values, for programs."""
        return {
            "rate": self.rate,
            "models": [each.to_dict() for each in self.models],
            "pairs": [
                {
                    "base": each.base,
                    "other": each.other,
                    "recordings": each.recordings,
                    "total": each.total,
                    "difference": each.difference,
                    "low": each.low,
                    "high": each.high,
                    "level": LEVEL,
                    "pairs": each.pairs,
                    "verdict": each.verdict,
                    "sentence": each.sentence,
                }
                for each in self.pairs
            ],
            "intervals": self.blocks.about,
        }


def overview(columns: Columns, seed: int = 0, breakdowns: bool = True) -> Overview:
    """Computes the figures of a report.

    Args:
        seed: of the draws; the same seed gives the same intervals.
        breakdowns: whether to compute those too.
    """
    scored = np.isfinite(columns.errors()).any(axis=1)  # by at least one model
    blocks = columns.blocks(scored)
    names = [columns.short[model] for model in columns.models]
    intervals = {
        kind: rate_intervals(columns.errors(kind)[scored], columns.units(kind)[scored], blocks, seed=seed)
        for kind in ("primary", "words", "chars")
    }
    pairs = differences(
        names, columns.errors()[scored], columns.units()[scored], blocks, total=columns.expected, seed=seed
    )
    return Overview(
        columns.rate,
        tuple(_figures(columns, place, intervals) for place in range(len(columns.models))),
        tuple(pairs),
        tuple(_breakdowns(columns, seed)) if breakdowns else (),
        blocks,
    )


def _figures(columns: Columns, place: int, intervals: dict[str, list[Interval]]) -> ModelFigures:
    model = columns.models[place]
    wrong, missing, added, right = (
        int(each) for each in np.nan_to_num(columns.counts["primary"][:, place]).sum(axis=0)
    )
    cpu = columns.cpu[:, place]
    # Only recordings with a known computing time say how fast a model is.
    timed = (np.nan_to_num(columns.compute[:, place]) > 0) & np.isfinite(columns.seconds)
    return ModelFigures(
        model,
        int(columns.done[place]),
        len(columns.failures[model]),
        intervals["primary"][place],
        intervals["words"][place],
        intervals["chars"][place],
        wrong,
        missing,
        added,
        wrong + missing + right,
        float(columns.seconds[timed].sum()),
        float(columns.compute[timed, place].sum()),
        float(np.nansum(cpu)) if np.isfinite(cpu).any() else None,
        columns.memory[model],
    )


def _breakdowns(columns: Columns, seed: int) -> list[Breakdown]:
    scored = np.isfinite(columns.units()).any(axis=1)
    units = np.where(scored, np.nanmax(columns.units(), axis=1, initial=0), np.nan)
    properties: list[tuple[str, Callable[[], tuple[Sequence[str], Sequence[Any]]]]] = [
        ("Duration", lambda: _ranges(columns.seconds, SECONDS, "s")),
        ("Length of the reference", lambda: _ranges(units, UNITS, _unit(columns))),
        ("Language", lambda: _values([each.language for each in columns.utterances])),
        ("Noise", lambda: _values([each.noise for each in columns.utterances])),
        ("Speaker", lambda: _values([each.speaker for each in columns.utterances])),
    ]
    breakdowns = []
    for title, grouped in properties:
        of, order = grouped()
        if len(order) > 1:
            breakdowns.append(_breakdown(columns, title, of, order, seed))
    return breakdowns


def _unit(columns: Columns) -> str:
    return {"WER": "words", "CER": "characters", "MER": "units"}[columns.rate]


def _ranges(values: np.ndarray, begins: Sequence[float], unit: str) -> tuple[list[str], list[str]]:
    """Returns the group of each value, empty for one that is not known, and the groups in order."""
    ends = [*begins[1:], None]
    counts_units = all(isinstance(each, int) for each in begins)
    names = []
    for begin, end in zip(begins, ends):
        if end is None:
            name = f"{begin:g} {unit} and more"
        elif counts_units:
            name = f"{begin:g} {unit}" if end == begin + 1 else f"{begin:g} to {end - 1:g} {unit}"
        else:
            name = f"{begin:g} to {end:g} {unit}"
        names.append(name)
    is_known = np.isfinite(values)
    places = np.searchsorted(np.array(begins), np.where(is_known, values, 0), side="right") - 1
    of = [names[place] if known else "" for place, known in zip(places, is_known)]
    used_names = set(of)
    return of, [name for name in names if name in used_names]


def _values(values: Sequence[str | None]) -> tuple[list[str], list[str]]:
    """As `_ranges`, for values that are names; numbers such as "10 dB" are ordered as numbers."""
    of = [each or "" for each in values]
    return of, sorted({each for each in of if each}, key=_order)


def _order(name: str) -> tuple[int, float, str]:
    try:
        return (0, float(name.split()[0]), name)
    except (ValueError, IndexError):
        return (1, 0.0, name)


def _breakdown(columns: Columns, title: str, of: Sequence[str], order: Sequence[str], seed: int) -> Breakdown:
    errors, units = columns.errors(), columns.units()
    members: dict[str, list[int]] = {name: [] for name in order}
    for row, name in enumerate(of):
        if name:
            members[name].append(row)
    groups = []
    for name, rows in members.items():
        speakers = [None if title == "Speaker" else columns.utterances[row].speaker for row in rows]
        intervals = rate_intervals(errors[rows], units[rows], blocks_of(speakers), draws=GROUP_DRAWS, seed=seed)
        groups.append(Group(name, len(rows), tuple(intervals)))
    if len(groups) > MAX_GROUPS:
        worst = sorted(groups, key=lambda each: -max((value.rate or 0.0) for value in each.intervals))[:MAX_GROUPS]
        return Breakdown(f"{title}: the {MAX_GROUPS} with the highest rates", tuple(worst), len(groups) - MAX_GROUPS)
    return Breakdown(title, tuple(groups))
