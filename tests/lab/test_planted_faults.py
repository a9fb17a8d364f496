"""Each of ten planted faults is named, exactly and wherever it lies, in SenseVoice and in Fun-ASR-Nano.

Candidates compute in float32 on PyTorch, by other kernels than the reference. The verdict names the stage that is the
first one recorded behind the fault, end to end; isolated, that stage and no other which the fault does not change
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.lab.faults import FAULTS, Parts, Planted
from workbench.opening import Settings
from workbench.parity import compare, judge, noise_or_bug
from workbench.parity.verdict import Verdict
from workbench.runtimes.pytorch import settle
from workbench.session import Trace
from workbench.sources import assets

FAMILIES = ("sensevoice", "funasr-nano")
SAMPLE = assets() / "samples" / "three_seven_one.wav"
STAGES = "frontend.*,prompt.*,encoder.*,predictor.*,adaptor.*,decoder.*,llm.*,logits"


class Model:
    """A demo model's traces in float32 and in float64, and a session in float32 by other kernels to plant faults in."""

    def __init__(self, family: str):
        directory = assets() / f"demo-{family}"
        module: Any = import_module(f"workbench.runtimes.pytorch.{family.replace('-', '_')}")

        def opened(dtype: str) -> Any:
            return module.open_session(directory, "demo", Settings(threads=1, dtype=dtype))

        with closing(opened("float32")) as session:
            self.reference = traced(session)
        with closing(opened("float64")) as session:
            self.exact, self.exact_alone = traced(session), traced(session, self.reference)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(settle, "_can_pack", lambda: False)
            self.session = opened("float32")

    def verdict(self, isolated: bool) -> Verdict:
        """On what the session computes as it is now."""
        candidate = traced(self.session, self.reference if isolated else None)
        exact = self.exact_alone if isolated else self.exact
        return judge(compare(self.reference, candidate), noise_or_bug(self.reference, candidate, exact))


def traced(session: Any, given: Trace | None = None) -> Trace:
    trace: Trace = session.trace(SAMPLE, stages=STAGES, given=given)
    return trace


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, Model]]:
    models = {family: Model(family) for family in FAMILIES}
    yield models
    for model in models.values():
        model.session.close()


def strangers(verdict: Verdict, planted: Planted) -> list[str]:
    """The stages that are in error and that the fault does not change itself."""
    return [
        stage
        for stage in verdict.faulty_stages
        if not any(fnmatchcase(stage, own) for own in (planted.stage, *planted.alone))
    ]


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_fault_none_is_named(models: dict[str, Model], family: str, isolated: bool) -> None:
    verdict = models[family].verdict(isolated)
    assert verdict.within and verdict.faulty_stage is None and verdict.faulty_stages == ()
    assert "arithmetic noise" in verdict.sentence


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_planted_fault_is_named(models: dict[str, Model], family: str, fault: str, seed: int) -> None:
    model = models[family]
    with Parts(model.session, model.reference, seed) as parts:
        planted = FAULTS[fault](parts)
        verdict, alone = model.verdict(isolated=False), model.verdict(isolated=True)
    assert verdict.faulty_stage == planted.stage and not verdict.within, verdict.sentence
    assert verdict.sentence.startswith(f"{planted.stage} is the first of ")
    assert alone.faulty_stage == planted.stage and not alone.within, alone.sentence
    assert strangers(alone, planted) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_planted_faults_leave_the_model_as_it_was(models: dict[str, Model], family: str) -> None:
    model = models[family]
    before = traced(model.session)
    for plant in FAULTS.values():
        with Parts(model.session, model.reference) as parts:
            plant(parts)
    after = traced(model.session)
    assert all((before[stage] == after[stage]).all() for stage in before)
