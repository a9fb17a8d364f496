"""Demo models whose code has one line changed, and the hint that a coarse dump of them gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults_judged import PROMPT, SAMPLE, Model
from workbench.compare import compare, judge
from workbench.compare.explain import with_hints
from workbench.compare.guesses.guess import Linear
from workbench.compare.presets import PRESETS, Tolerances
from workbench.conversion.linear_layers import linear_layers
from workbench.core.settings import Settings
from workbench.trace.trace import Trace

Plant = Callable[[pytest.MonkeyPatch], None]
COARSE = "frontend.*,encoder.*,predictor.*,adaptor.*,decoder.*"
LANGUAGE = "prompt.*,llm.*"
INSIDE = {"fireredasr": f"{COARSE},encoder.layers.0.*"}


class Demo:
    """A demo model: a session, and the trace of it without a fault."""

    def __init__(self, family: str, directory: Path | None = None):
        self.family, self.directory = family, directory or Model.directory_of(family)
        self.session = self._opened("float32")
        self.reference = self.traced(INSIDE.get(family, ""))
        self._known: dict[str, Linear | None] = {}

    def _opened(self, dtype: str) -> Any:
        module = import_module(f"workbench.runtimes.pytorch.{self.family}")
        return module.open_session(self.directory, "demo", Settings(threads=1, dtype=dtype))

    def traced(self, stages: str = "") -> Trace:
        """The trace of the sample or the prompt, by default without stages inside layers."""
        if self.family == "causal_lm":
            trace: Trace = self.session.trace(PROMPT, stages=stages or LANGUAGE)
        else:
            trace = self.session.trace(SAMPLE, stages=stages or COARSE)
        return trace

    def layers(self, stages: Sequence[str]) -> Mapping[str, Linear]:
        unknown = [each for each in stages if each not in self._known]
        found = linear_layers(self.directory, self.family, unknown)
        self._known |= {each: Linear(*found[each]) if each in found else None for each in unknown}
        return {each: layer for each in stages if (layer := self._known[each]) is not None}

    def judged(self, candidate: Trace, preset: str = "f32") -> tuple[str | None, str | None]:
        """The first stage in error and its hint."""
        comparison = compare(self.reference, candidate, Tolerances(PRESETS[preset]))
        verdict = judge(with_hints(comparison, None, self.reference, candidate, layers=self.layers))
        return verdict.faulty_stage, verdict.explanation.sentence if verdict.explanation else None


def opened_demos() -> Iterator[Callable[[str], Demo]]:
    """Yields a function that opens each demo model once."""
    opened: dict[str, Demo] = {}

    def demo(family: str) -> Demo:
        if family not in opened:
            opened[family] = Demo(family)
        return opened[family]

    yield demo
    for each in opened.values():
        each.session.close()


def method(owner: Any, name: str, replaced: Callable[..., Any]) -> Plant:
    """Returns what replaces a method."""
    return lambda patch: patch.setattr(owner, name, replaced)
