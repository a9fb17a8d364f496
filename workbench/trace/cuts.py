"""Stages that a trace holds only in part, such as the last row of the logits.

A mapping file says so (`reference_rows`, `reference_columns`), and the trace's metadata carry it. A comparison cuts the
other trace's stages to the same part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.trace.trace import Trace

KEY = "cuts"  # in the metadata: {stage: {"rows": [-1], "columns": [0, 100]}}


def is_range(value: Any) -> bool:
    """Returns whether a value is [begin, end] or [begin], whole numbers that can enclose a range."""
    if not isinstance(value, (list, tuple)) or not all(type(each) is int for each in value):
        return False
    return len(value) == 1 or (len(value) == 2 and (value[0] < value[1] or value[0] >= 0 > value[1]))


def slice_of(ends: tuple[int, ...]) -> slice:
    """Returns the slice of [begin, end], or of [begin] to the end of the axis. Negative numbers count from the end."""
    return slice(ends[0], ends[1] if len(ends) > 1 else None)


@dataclass(frozen=True)
class Cut:
    """The part of a stage that a trace holds; None for all rows or columns."""

    rows: tuple[int, ...] | None = None
    columns: tuple[int, ...] | None = None

    def apply(self, array: np.ndarray) -> np.ndarray:
        """Returns the part, a view. The columns are the last dimension."""
        if array.ndim and self.rows is not None:
            array = array[slice_of(self.rows)]
        if array.ndim and self.columns is not None:
            array = array[..., slice_of(self.columns)]
        return array

    def __str__(self) -> str:
        parts = (("rows", self.rows), ("columns", self.columns))
        return " and ".join(f"{name} {_words(ends)}" for name, ends in parts if ends is not None)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values, for a trace's metadata."""
        parts = (("rows", self.rows), ("columns", self.columns))
        return {name: list(ends) for name, ends in parts if ends is not None}


def _words(ends: tuple[int, ...]) -> str:
    return f"{ends[0]} to {ends[1]}" if len(ends) > 1 else f"from {ends[0]} on"


def cuts_of(trace: Trace) -> dict[str, Cut]:
    """Returns the stages that the trace holds only in part; raises `BadInput` for metadata in another form."""
    fields = trace.meta.get(KEY) or {}
    if not isinstance(fields, dict):
        raise BadInput(f"the metadata of {trace.label} have {KEY} = {fields!r:.40}; expected a table of stages")
    cuts = {}
    for stage, parts in fields.items():
        is_cut = isinstance(parts, dict) and parts and not parts.keys() - {"rows", "columns"}
        if not is_cut or not all(map(is_range, parts.values())):
            raise BadInput(
                f"the metadata of {trace.label} cut {stage!r:.80} to {parts!r:.80}; expected rows or columns as "
                "[begin, end]"
            )
        cuts[stage] = Cut(**{name: tuple(ends) for name, ends in parts.items()})
    return cuts


def cut_like(trace: Trace, other: Trace) -> Trace:
    """Returns the trace with the same stages cut as in `other`; the trace itself if `other` has no cut stages."""
    cuts = {stage: cut for stage, cut in cuts_of(other).items() if stage in trace}
    return CutTrace(trace, cuts) if cuts else trace


class CutTrace(Trace):
    """A trace that cuts some of its stages when they are read."""

    def __init__(self, trace: Trace, cuts: Mapping[str, Cut]):
        super().__init__({}, trace.meta)
        self._trace, self._cuts = trace, dict(cuts)

    @property
    def label(self) -> str:
        """The name of the whole trace in messages."""
        return self._trace.label

    def __getitem__(self, stage: str) -> np.ndarray:
        array = self._trace[stage]
        return self._cuts[stage].apply(array) if stage in self._cuts else array

    def __contains__(self, stage: object) -> bool:
        return stage in self._trace

    def __iter__(self) -> Iterator[str]:
        return iter(self._trace)

    def __len__(self) -> int:
        return len(self._trace)

    def __reduce__(self) -> tuple[Any, ...]:
        return CutTrace, (self._trace, self._cuts), {"meta": self.meta}
