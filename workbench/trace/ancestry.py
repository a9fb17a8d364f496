"""The ancestry of a beam search: which earlier hypothesis each hypothesis continues, and which token it reads.

This file knows no models and no runtimes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.trace.step_names import step_stage
from workbench.trace.trace import Trace

PARENTS, TOKENS = "beams.parents", "beams.tokens"  # stages of a step's choice: the hypotheses that are kept
SCORES, CANDIDATES = "beams.scores", "beams.candidates"  # the best continuations, before pruning
FINISHED = "beams.finished"  # the scores of the finished hypotheses, with length penalty

Numbers = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Ancestry:
    """The hypotheses of every pass after the prompt's, from step 1 on.

    Hypothesis b of step n continues hypothesis `parents[n - 1][b]` of step n - 1, and reads `tokens[n - 1][b]`.
    """

    parents: Numbers
    tokens: Numbers

    def __post_init__(self) -> None:
        are_indices = all(
            type(number) is int and number >= 0 for row in (*self.parents, *self.tokens) for number in row
        )
        counts = {len(row) for row in (*self.parents, *self.tokens)}
        if not are_indices or len(self.parents) != len(self.tokens) or len(counts) > 1 or 0 in counts:
            raise BadInput(
                "the hypotheses to follow are not understood; expected as many parents and token ids at each step, "
                "whole numbers from 0 on"
            )
        if any(parent >= self.beams for row in self.parents for parent in row):
            raise BadInput(f"the hypotheses to follow have parents beyond the {self.beams} of a step")

    @property
    def passes(self) -> int:
        """The number of passes after the prompt's."""
        return len(self.tokens)

    @property
    def beams(self) -> int:
        """The number of hypotheses of each step."""
        return len(self.tokens[0]) if self.tokens else 0

    def to_meta(self) -> dict[str, Any]:
        """Returns it as metadata."""
        return {"parents": [list(row) for row in self.parents], "tokens": [list(row) for row in self.tokens]}

    def common_steps(self, other: Ancestry) -> int:
        """Returns the last step up to which both have the same hypotheses in the same places."""
        steps = zip(self.parents, self.tokens, other.parents, other.tokens)
        return next(
            (place for place, (p, t, q, u) in enumerate(steps) if (p, t) != (q, u)), min(self.passes, other.passes)
        )


def ancestry_in(fields: Any, label: str) -> Ancestry:
    """Returns the ancestry `fields` in the metadata of the trace `label`; raises `BadInput` if it is damaged."""
    names = ("parents", "tokens")
    rows = [each for name in names if isinstance(each := fields.get(name), list)] if isinstance(fields, Mapping) else []
    if len(rows) != len(names) or not all(isinstance(row, list) for each in rows for row in each):
        raise BadInput(f"the metadata of {label} have hypotheses {fields!r:.60}; expected lists of parents and tokens")
    return _checked_ancestry(label, (tuple(map(tuple, each)) for each in rows))


def ancestry_of_stages(trace: Trace) -> Ancestry | None:
    """Returns the ancestry from the stages of a trace: of step 1 and the steps after it without a gap; None if step 1
    is missing.

    The arrays may have more axes than one, such as a batch axis of another program. Raises `BadInput` if a value is not
    a whole number.
    """
    rows: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = [], []
    while True:
        names = [step_stage(len(rows[0]) + 1, name) for name in (PARENTS, TOKENS)]
        if not all(name in trace for name in names):
            break
        arrays = [trace[name].reshape(-1) for name in names]
        if not all(len(each) for each in arrays):
            break  # the search has ended
        for row, each, name in zip(rows, arrays, names, strict=True):
            row.append(_integers(each, f"stage {name} of {trace.label}"))
    return _checked_ancestry(trace.label, map(tuple, rows)) if rows[0] else None


def _checked_ancestry(label: str, rows: Iterable[Numbers]) -> Ancestry:
    try:
        return Ancestry(*rows)
    except BadInput as error:
        raise BadInput(f"{label}: {error}") from None


def _integers(array: np.ndarray, name: str) -> tuple[int, ...]:
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all() or (array != np.round(array)).any():
        raise BadInput(f"{name} holds {array.dtype} values, which are not numbers of beams or tokens")
    return tuple(array.astype(np.int64).tolist())


def has_beams(stages: Iterable[str]) -> bool:
    """Returns whether one of the stages belongs to a beam search."""
    return any(re.match(r"steps\.[0-9]+\.beams\.", stage) for stage in stages)
