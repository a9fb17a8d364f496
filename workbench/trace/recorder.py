"""Records the requested stages of a pass on any runtime, and can substitute stages from another trace.

A network passes each of its named points to the recorder and continues with the value that it gets back. In a normal
trace that is the same value. In an *isolated* trace it is the value that another computation had there, so that every
stage is computed from the other's input and shows only its own error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

import numpy as np

from workbench.core.errors import BadInput
from workbench.trace.spill import Spill

Stages = Mapping[str, np.ndarray]
"""Arrays by stage name."""

_MAYBE_EMPTY = ("predictor.embeddings", "tokens")  # stages that may have no rows
ANY_ROWS = ("frontend.*", "prompt.tokens", "adaptor.output", "llm.embeddings", *_MAYBE_EMPTY)
"""Stages whose number of rows may differ in the substituted trace; all later stages then have that number of rows.

Every other stage meets values from the rest of this pass, so its rows must match."""


def stage_digest(array: np.ndarray) -> str:
    """Returns 16 hexadecimal digits of an array's type, shape and values, independent of where it was computed."""
    digest = hashlib.sha256(f"{array.dtype.str.lstrip('<=>|')} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()[:16]


def can_stand_for(stage: str, array: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Returns whether an array can replace a stage of this shape. Stages in `ANY_ROWS` may have other rows."""
    rows = 1 if any(fnmatchcase(stage, glob) for glob in ANY_ROWS) else 0
    has_shape = array.ndim == len(shape) and array.shape[rows:] == shape[rows:]
    is_empty = rows and has_shape and not len(array) and stage not in _MAYBE_EMPTY
    return has_shape and not is_empty and (not shape or array.dtype.kind in "biuf")


class Recorder:
    """The recorded stages of a pass in the order in which they came; large ones are spilled to a file (`spill`).

    Args:
        wanted: returns whether to record the stage of a name; it is called before an expensive computation or copy.
        given: the substituted stages by name, with which the pass continues; other stages keep their own value.
    """

    def __init__(self, wanted: Callable[[str], bool], given: Stages | None = None):
        self.wanted = wanted
        self._spill = Spill()
        self.isolated = given is not None  # whether the pass continues with substituted stages
        self._given = given or {}

    @property
    def rows(self) -> tuple[Recorder, ...]:
        """The recorders of the rows of a batch, from the first on; later rows are not recorded."""
        return (self,)

    @property
    def stages(self) -> dict[str, np.ndarray]:
        """The recorded stages, in the order in which they came."""
        return self._spill.arrays

    def clear(self) -> None:
        """Drops the recorded stages."""
        self._spill.clear()

    def needs(self, stage: str) -> bool:
        """Returns whether a stage is recorded or substituted."""
        return self.wanted(stage) or stage in self._given

    def put(self, stage: str, value: np.ndarray) -> np.ndarray:
        """Records a stage if it is wanted, without a batch dimension and without a copy.

        A caller that changes the array later passes a copy. Returns the value to continue with: the stage itself, or
        the substituted one (see `given`).
        """
        if self.wanted(stage):
            self._spill.put(stage, value)
        substitute = self.given(stage, value.shape)
        return value if substitute is None else substitute

    @property
    def substituting(self) -> Recorder:
        """A recorder that substitutes the same stages and records none."""
        return Recorder(lambda _: False, self._given if self.isolated else None)

    def allocate(self, stage: str, shape: tuple[int, ...], kind: type = np.float32) -> np.ndarray:
        """Returns an array of zeros that the caller fills piece by piece, recorded as a wanted stage."""
        return self._spill.allocate(stage, shape, kind)

    def given(self, stage: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Returns the substituted stage for a stage of this shape; None if none is substituted.

        Stages in `ANY_ROWS` may differ in the number of rows. Raises `BadInput` if the shapes differ in another way, or
        if an array does not hold numbers.
        """
        if stage not in self._given:
            return None
        substitute = self._given[stage]
        if not can_stand_for(stage, substitute, shape):
            raise BadInput(
                f"{stage} of the trace to compute from is {substitute.dtype} of the shape {substitute.shape}, of this "
                f"model numbers of the shape {shape}; expected a trace of the same model and input"
            )
        return substitute
