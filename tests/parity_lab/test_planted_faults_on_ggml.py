"""The ten planted faults are named where the candidate is a converted model on ggml, in float32 and in 8 bits.

No stage comparison can find a fault that is smaller than the noise of a quantised candidate; a test lists which of the
ten faults these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("llama_cpp")

from tests.support.faults import Planted
from tests.support.faults_elsewhere import ELSEWHERE
from tests.support.faults_judged import Model, strangers
from tests.support.faults_on_ggml import FAULTS, Port
from workbench.compare.verdict import Verdict

FAMILIES = ("sensevoice", "funasr_nano")

HIDDEN = {  # by the noise of q8_0, which changes later stages more than these faults
    "sensevoice": {"layer-norm eps 1e-5 to 1e-3"},
    "funasr_nano": {"layer-norm eps 1e-5 to 1e-3", "positions from 0 instead of 1"},
}
SEEN_LATER = {  # end to end, the first later stage that changes by more than the noise
    ("funasr_nano", "positions from 0 instead of 1"): "encoder.layers.0.attention"
}


@pytest.fixture(scope="module")
def models() -> Mapping[str, Model]:
    return {family: Model(family) for family in (*FAMILIES, *ELSEWHERE)}


Models = Mapping[str, Model]


@pytest.mark.parametrize("quantization", ["f32", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("family", [*FAMILIES, *ELSEWHERE])
def test_ggml_model_without_a_fault_is_within_noise(
    models: Models, family: str, quantization: str, tmp_path: Path
) -> None:
    with Port(family, tmp_path, models[family].reference, quantization=quantization) as port:
        for verdict in _verdicts(models[family], port):
            assert verdict.within and verdict.faulty_stages == (), verdict.sentence


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_planted_fault_on_ggml_in_float32_is_named(models: Models, family: str, fault: str, tmp_path: Path) -> None:
    verdict, isolated, planted = _judged(models[family], family, fault, tmp_path, "f32")
    assert verdict.faulty_stage == planted.stage, verdict.sentence
    assert isolated.faulty_stage == planted.stage, isolated.sentence
    assert strangers(isolated, planted) == []


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "f16 overflow in the adaptor"])
@pytest.mark.parametrize("family", FAMILIES)
def test_large_planted_faults_on_ggml_in_q8_0_are_named(
    models: Models, family: str, fault: str, tmp_path: Path
) -> None:
    verdict, isolated, planted = _judged(models[family], family, fault, tmp_path, "q8_0")
    expected = None if fault in HIDDEN[family] else planted.stage
    assert verdict.faulty_stage == SEEN_LATER.get((family, fault), expected), verdict.sentence
    assert isolated.faulty_stage == expected, isolated.sentence
    assert strangers(isolated, planted) == []


def _judged(model: Model, family: str, fault: str, folder: Path, quantization: str) -> tuple[Verdict, Verdict, Planted]:
    seed = list(FAULTS).index(fault)
    with Port(family, folder, model.reference, seed, quantization) as port:
        planted = FAULTS[fault](port)
        return *_verdicts(model, port), planted


def _verdicts(model: Model, port: Port) -> tuple[Verdict, Verdict]:
    """Returns the verdicts end to end and isolated."""
    with port.session() as session:
        return model.verdict(session, isolated=False), model.verdict(session, isolated=True)
