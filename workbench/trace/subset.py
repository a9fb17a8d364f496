"""Some stages of a trace as a trace of their own; arrays are read when they are used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from workbench.trace.trace import Trace


class TraceSubset(Trace):
    """Some stages of a trace.

    Args:
        meta: by default that of the whole trace.
    """

    def __init__(self, trace: Trace, stages: Iterable[str], meta: Mapping[str, Any] | None = None):
        super().__init__({}, trace.meta if meta is None else meta)
        self._trace, self._names = trace, dict.fromkeys(stages)

    @property
    def label(self) -> str:
        """The name of the whole trace in messages."""
        return self._trace.label

    def __getitem__(self, stage: str) -> np.ndarray:
        if stage not in self._names:
            raise KeyError(f"no stage {stage!r} in this trace; it has {', '.join(self._names)}")
        return self._trace[stage]

    def __contains__(self, stage: object) -> bool:
        return stage in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[Any, ...]:
        return TraceSubset, (self._trace, list(self._names), self.meta)
