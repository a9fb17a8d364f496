"""When the rows of a stage were spoken: the place of row 0 in the recording, and the time from one row to the next.

A model's pipeline names the times by globs of stages. They are part of a trace's metadata, so a trace in a file has
them too. Rows that have no time, such as the positions of a prompt, are not named. Stages of a codec have times in the
audio of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol, runtime_checkable

META = "row_seconds"  # the key in a trace's metadata


class RowTimes(NamedTuple):
    """Row i of a stage goes from `start + i * step` to `start + (i + 1) * step` seconds of the recording."""

    start: float
    step: float


@runtime_checkable
class TimesRows(Protocol):
    """A part of a model that knows the times of its rows."""

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """The times by globs of stages; the first glob that matches a stage counts."""
        ...


def times_meta(part: object) -> dict[str, Any]:
    """Returns the entry for a trace's metadata about the times of its rows; empty if `part` does not know them."""
    return {META: {glob: list(times) for glob, times in part.row_times.items()}} if isinstance(part, TimesRows) else {}


def row_times(meta: Mapping[str, Any], stage: str) -> RowTimes | None:
    """Returns the times of a stage's rows from its trace's metadata; None if they are not there."""
    times_by_glob = meta.get(META)
    for glob, times in times_by_glob.items() if isinstance(times_by_glob, Mapping) else ():
        if fnmatchcase(stage, glob):
            start, step = times
            return RowTimes(float(start), float(step))
    return None
