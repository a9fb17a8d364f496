"""Demo models with their traces in float32 and float64, and what a verdict on a faulty candidate names."""

from __future__ import annotations

from contextlib import closing
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults import Planted
from workbench.compare import compare, judge, noise_or_bug
from workbench.compare.verdict import Verdict
from workbench.core.settings import Settings
from workbench.registry.sources import assets
from workbench.trace.trace import Trace

SAMPLE = assets() / "samples" / "three_seven_one.wav"
PROMPT = "three seven one"
STAGES = "frontend.*,prompt.*,encoder.*,predictor.*,adaptor.*,decoder.*,llm.*,logits"
DIRECTORIES = {"causal_lm": "demo-funasr-nano"}  # of whose halves one is meant; others have the family's name


class Model:
    """A demo model's traces on PyTorch: in float32, in float64, and in float64 from the stages of the first.

    Args:
        family: as its module is called.
    """

    def __init__(self, family: str):
        self.family = family
        self.directory = self.directory_of(family)
        with closing(self.opened("float32")) as session:
            self.reference = self.traced(session)
        with closing(self.opened("float64")) as session:
            self.exact, self.exact_alone = self.traced(session), self.traced(session, self.reference)

    @staticmethod
    def directory_of(family: str) -> Path:
        """Of the demo checkpoint."""
        return assets() / DIRECTORIES.get(family, f"demo-{family.replace('_', '-')}")

    @property
    def module(self) -> Any:
        """The family's module on PyTorch."""
        return import_module(f"workbench.runtimes.pytorch.{self.family}")

    def opened(self, dtype: str = "float32", packed: bool = True) -> Any:
        """A session on PyTorch, by the kernels that the reference is computed by or by other ones."""
        from workbench.runtimes.pytorch.checkpoints import finalise_weights

        with pytest.MonkeyPatch.context() as patch:
            if not packed:
                patch.setattr(finalise_weights, "_can_pack", lambda kind: False)
            return self.module.open_session(self.directory, "demo", Settings(threads=1, dtype=dtype))

    def traced(self, session: Any, given: Trace | None = None) -> Trace:
        """The model's input on a session, without what it goes on to write."""
        trace: Trace = session.trace(PROMPT if self.family == "causal_lm" else SAMPLE, stages=STAGES, given=given)
        return trace

    def verdict(self, session: Any, isolated: bool) -> Verdict:
        """On what a session computes, end to end or from the reference's own inputs."""
        candidate = self.traced(session, self.reference if isolated else None)
        exact = self.exact_alone if isolated else self.exact
        return judge(compare(self.reference, candidate), noise_or_bug(self.reference, candidate, exact))


def strangers(verdict: Verdict, planted: Planted) -> list[str]:
    """The stages that are in error and that the fault does not change itself."""
    own = (planted.stage, *planted.alone)
    return [stage for stage in verdict.faulty_stages if not any(fnmatchcase(stage, glob) for glob in own)]
