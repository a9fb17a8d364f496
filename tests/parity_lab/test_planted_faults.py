"""Each of ten planted faults is named, exactly and wherever it lies, in SenseVoice and in Fun-ASR-Nano.

Candidates compute in float32 on PyTorch, by other kernels than the reference. The verdict names the stage that is the
first one recorded behind the fault, end to end; isolated, that stage and no other which the fault does not change
itself. Other families have a few faults of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.support.faults import FAULTS, Parts, Planter
from tests.support.faults_elsewhere import ELSEWHERE
from tests.support.faults_judged import Model, strangers

FAMILIES = ("sensevoice", "funasr_nano")


class Candidate(Model):
    """A model with a float32 session by other kernels, in which the tests plant faults."""

    def __init__(self, family: str):
        super().__init__(family)
        self.session = self.opened(packed=False)


@pytest.fixture(scope="module")
def models() -> Iterator[Mapping[str, Candidate]]:
    models = {family: Candidate(family) for family in (*FAMILIES, *ELSEWHERE)}
    yield models
    for model in models.values():
        model.session.close()


Models = Mapping[str, Candidate]


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("family", [*FAMILIES, *ELSEWHERE])
def test_model_without_a_fault_is_within_noise(models: Models, family: str, isolated: bool) -> None:
    verdict = models[family].verdict(models[family].session, isolated)
    assert verdict.within and verdict.faulty_stage is None and verdict.faulty_stages == ()
    assert "Arithmetic noise" in verdict.sentence


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_planted_fault_is_named(models: Models, family: str, fault: str, seed: int) -> None:
    _is_named(models[family], FAULTS[fault], seed)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("family", "fault"), [(family, fault) for family in ELSEWHERE for fault in ELSEWHERE[family]])
def test_planted_fault_in_another_model_family_is_named(models: Models, family: str, fault: str, seed: int) -> None:
    _is_named(models[family], ELSEWHERE[family][fault], seed)


def _is_named(model: Candidate, plant: Planter, seed: int) -> None:
    with Parts(model.session, model.reference, seed) as parts:
        planted = plant(parts)
        verdict, isolated_verdict = (model.verdict(model.session, isolated) for isolated in (False, True))
    assert verdict.faulty_stage == planted.stage and not verdict.within, verdict.sentence
    assert verdict.sentence.startswith(f"{planted.stage} is the first stage ")
    assert isolated_verdict.faulty_stage == planted.stage and not isolated_verdict.within, isolated_verdict.sentence
    assert strangers(isolated_verdict, planted) == []


@pytest.mark.parametrize("family", [*FAMILIES, *ELSEWHERE])
def test_model_is_restored_after_planted_faults(models: Models, family: str) -> None:
    model = models[family]
    before = model.traced(model.session)
    planters: Mapping[str, Any] = FAULTS if family in FAMILIES else ELSEWHERE[family]
    for plant in planters.values():
        with Parts(model.session, model.reference) as parts:
            plant(parts)
    after = model.traced(model.session)
    assert all((before[stage] == after[stage]).all() for stage in before)
