"""A trace: the arrays of one computation by stage, with metadata; and the filter of wanted stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.phrases import dimensions
from workbench.trace.gradients import is_gradient
from workbench.trace.inside import is_inside, reaches_inside
from workbench.trace.order import are_known
from workbench.trace.step_names import step_and_stage

MAX_SHOWN = 12  # stages in a trace's `repr`


class Trace(Mapping[str, np.ndarray]):
    """An ordered mapping from stage name to array, with metadata about the computation.

    `meta` holds plain JSON values: model, runtime, dtype, versions, options, the input's digest. The stage `text` is a
    zero-dimensional string array; in a file it is UTF-8 bytes.
    """

    def __init__(self, stages: Mapping[str, np.ndarray], meta: Mapping[str, Any]):
        self._stages = dict(stages)
        self.meta = dict(meta)

    @property
    def label(self) -> str:
        """The name of the trace in messages."""
        return "a trace"

    @property
    def is_ordered(self) -> bool:
        """Whether the stages come in the order in which they are compared; otherwise their names tell it.

        They do if a pass recorded them, or if most names are another program's, which tell nothing.
        """
        return bool(self.meta) or not are_known(self)

    @property
    def has_lost_order(self) -> bool:
        """Whether nothing tells the order of the computation: neither the names of the stages nor their file."""
        return False

    def __getitem__(self, stage: str) -> np.ndarray:
        try:
            return self._stages[stage]
        except KeyError:
            raise KeyError(f"no stage {stage!r} in this trace; it has {', '.join(self._stages)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __repr__(self) -> str:
        names = (
            list(self) if len(self) <= MAX_SHOWN else [*list(self)[: MAX_SHOWN // 2], *list(self)[-MAX_SHOWN // 2 :]]
        )
        shapes = [f"{name} {dimensions(self[name].shape) or 'scalar'}" for name in names]
        if len(names) < len(self):
            shapes.insert(MAX_SHOWN // 2, f"... {len(self) - len(names)} more ...")
        return f"Trace({self.meta.get('model')}, {self.meta.get('runtime')}: {', '.join(shapes)})"

    def _repr_html_(self) -> str:
        from workbench.trace.display import trace_html

        return trace_html(self)

    def save(self, path: str | Path) -> Path:
        """Writes a `.safetensors` file: the arrays, and `meta` and the order of the stages as JSON metadata.

        If the arrays are in a file, only one is in memory at a time. Raises `BadInput` if the path cannot be written or
        the format does not support an array.
        """
        from workbench.trace.write import write_trace

        return write_trace(path, self, self.meta)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Reads a trace into memory: a `.safetensors` file with any name, or any format of `workbench.trace.read`.

        Numbers of type bfloat16, which numpy does not have, become float32. Raises `BadInput` if the file is missing,
        damaged, or not what it claims to be.
        """
        from workbench.trace.read import read_trace

        trace = read_trace(path, otherwise=".safetensors")
        return cls({stage: np.array(array) for stage, array in trace.items()}, trace.meta)


class StageFilter:
    """A filter of stages: a glob such as `encoder.*`, several separated by commas, or `*` for all.

    A stage of a decoding step, such as `steps.3.logits`, is taken by its own name and by that of the stage, `logits`.

    Args:
        is_recorded: whether the stages exist already. Of stages that are still to be computed, only a glob of at
            least four parts takes those inside a layer (see `workbench.trace.inside`), and only a glob that names
            gradients takes those (see `workbench.trace.gradients`).
    """

    def __init__(self, pattern: str = "*", is_recorded: bool = False):
        self._is_recorded = is_recorded
        try:
            parts = pattern.split(",")
        except (AttributeError, TypeError) as error:  # a list or bytes
            kind = type(pattern).__name__
            raise BadInput(
                f"the stage pattern is of type {kind}; expected a text such as 'encoder.*,logits'"
            ) from error
        self.patterns = tuple(part.strip() for part in parts if part.strip())
        if not self.patterns:
            raise BadInput("the stage pattern is empty; expected a glob such as encoder.* or *")

    def __call__(self, stage: str) -> bool:
        names = {stage, step_and_stage(stage)[1]}
        matching = [pattern for pattern in self.patterns if any(fnmatchcase(name, pattern) for name in names)]
        if not matching or self._is_recorded:
            return bool(matching)
        if is_gradient(stage):
            return any(map(is_gradient, matching))
        if not is_inside(stage):
            return True
        return any(map(reaches_inside, matching))


StageSource = Trace | str | Path | None
"""The source of substituted stages: a trace, or the path of one."""


OutputPath = str | Path | None
"""The file to write a trace to; None if the trace is only returned."""
