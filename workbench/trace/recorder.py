"""Keeps the stages of a pass that a trace asks for, whatever computes them, and may give the pass others to go on with.

A network puts each of its named points here and goes on with what it gets back. In a trace of its own that is its own
value; *isolated*, it is the value that another computation had there, so that every stage is computed of the other's
input and shows its own error alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

import numpy as np

from workbench.core.errors import BadInput
from workbench.trace.spill import Spill

Stages = Mapping[str, np.ndarray]
"""Arrays by the names of stages."""

_COUNTED = ("predictor.embeddings", "tokens")  # of which there may be none
ANY_ROWS = ("frontend.*", "prompt.tokens", "adaptor.output", "llm.embeddings", *_COUNTED)
"""Stages of which another computation may have more or fewer rows, and everything after them as many as that one. All
others meet values that came another way, with rows of their own."""


def stage_digest(array: np.ndarray) -> str:
    """Of an array's type, shape and values: 16 hexadecimal digits, the same wherever the array came from."""
    found = hashlib.sha256(f"{array.dtype.str.lstrip('<=>|')} {array.shape} ".encode())
    found.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
    return found.hexdigest()[:16]


class Recorder:
    """The wanted stages of a pass, in the order in which they came; a part of many is in a file (`spill`).

    Args:
        wanted: tells by name whether to keep a stage; asked before a stage that costs something is computed or copied.
        given: what to go on with in place of a stage's own value, by its name; other stages go on with their own.
    """

    def __init__(self, wanted: Callable[[str], bool], given: Stages | None = None):
        self.wanted = wanted
        self._kept = Spill()
        self.isolated = given is not None  # whether stages go on with other values than their own
        self._given = given or {}

    @property
    def stages(self) -> dict[str, np.ndarray]:
        """What was kept, in the order in which it came."""
        return self._kept.arrays

    def clear(self) -> None:
        """Gives up what was kept."""
        self._kept.clear()

    def needs(self, stage: str) -> bool:
        """Whether a stage is to be kept, or something else is given in its place."""
        return self.wanted(stage) or stage in self._given

    def put(self, stage: str, value: np.ndarray) -> np.ndarray:
        """Keeps a wanted stage as it is, without a batch dimension; who goes on to change the array puts a copy.

        Returns what to go on with: the value itself, or what is given in its place (see `given`).
        """
        if self.wanted(stage):
            self._kept.put(stage, value)
        other = self.given(stage, value.shape)
        return value if other is None else other

    def room(self, stage: str, shape: tuple[int, ...]) -> np.ndarray:
        """An array of float32 zeros that is kept of a wanted stage, for who fills it row by row."""
        return self._kept.room(stage, shape, np.float32)

    def given(self, stage: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """What is given in place of a stage that has come out in a shape; None where nothing is.

        Of the stages that `ANY_ROWS` names it may have more or fewer rows. Raises `BadInput` where the shapes differ in
        another way, or where an array does not hold numbers.
        """
        if stage not in self._given:
            return None
        other = self._given[stage]
        rows = 1 if any(fnmatchcase(stage, glob) for glob in ANY_ROWS) else 0
        fits = other.ndim == len(shape) and other.shape[rows:] == shape[rows:]
        empty = rows and fits and not len(other) and stage not in _COUNTED
        if not fits or empty or (shape and other.dtype.kind not in "biuf"):
            raise BadInput(
                f"{stage} of the trace to compute from is {other.dtype} of the shape {other.shape}, of this model "
                f"numbers of the shape {shape}; expected a trace of the same model and input"
            )
        return other
