"""The ten planted faults are named where the candidate is a converted model on ggml, in float32 and in 8 bits.

What a quantised candidate's noise hides, no comparison of its stages with the reference's can find: a test says which
of the ten that are.
"""

from __future__ import annotations

from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("llama_cpp")

from tests.lab.faults import Planted
from tests.lab.faults_on_ggml import FAULTS, Port
from tests.lab.test_planted_faults import FAMILIES, strangers, traced
from workbench.opening import Settings
from workbench.parity import compare, judge, noise_or_bug
from workbench.parity.verdict import Verdict
from workbench.session import Trace
from workbench.sources import assets

HIDDEN = {  # by the noise of q8_0: they change the stages behind them by less than that does
    "sensevoice": {"layer-norm eps 1e-5 to 1e-3"},
    "funasr-nano": {"layer-norm eps 1e-5 to 1e-3", "positions from 0 instead of 1"},
}


class Truth:
    """A demo model's traces on PyTorch: in float32, in float64, and in float64 from the stages of the first."""

    def __init__(self, family: str):
        module: Any = import_module(f"workbench.runtimes.pytorch.{family.replace('-', '_')}")
        directory = assets() / f"demo-{family}"
        with closing(module.open_session(directory, "demo", Settings(threads=1, dtype="float32"))) as session:
            self.reference = traced(session)
        with closing(module.open_session(directory, "demo", Settings(threads=1, dtype="float64"))) as session:
            self.exact, self.exact_alone = traced(session), traced(session, self.reference)

    def verdicts(self, port: Port) -> tuple[Verdict, Verdict]:
        """On a port, end to end and isolated."""
        with port.session() as session:
            return tuple(self._verdict(traced(session, given), given) for given in (None, self.reference))  # type: ignore[return-value]

    def _verdict(self, candidate: Trace, given: Trace | None) -> Verdict:
        noise = noise_or_bug(self.reference, candidate, self.exact if given is None else self.exact_alone)
        return judge(compare(self.reference, candidate), noise)


@pytest.fixture(scope="module")
def truths() -> dict[str, Truth]:
    return {family: Truth(family) for family in FAMILIES}


@pytest.mark.parametrize("quantization", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_fault_none_is_named(
    truths: dict[str, Truth], family: str, quantization: str, tmp_path: Path
) -> None:
    with Port(family, tmp_path, truths[family].reference, quantization=quantization) as port:
        for verdict in truths[family].verdicts(port):
            assert verdict.within and verdict.faulty_stages == (), verdict.sentence


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_planted_fault_is_named(truths: dict[str, Truth], family: str, fault: str, tmp_path: Path) -> None:
    verdict, alone, planted = _found(truths[family], family, fault, tmp_path, "f32")
    assert verdict.faulty_stage == planted.stage, verdict.sentence
    assert alone.faulty_stage == planted.stage, alone.sentence
    assert strangers(alone, planted) == []


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "f16 overflow in the adaptor"])
@pytest.mark.parametrize("family", FAMILIES)
def test_of_blocks_of_8_bits_the_large_ones_are_named(
    truths: dict[str, Truth], family: str, fault: str, tmp_path: Path
) -> None:
    verdict, alone, planted = _found(truths[family], family, fault, tmp_path, "q8_0")
    expected = None if fault in HIDDEN[family] else planted.stage
    assert verdict.faulty_stage == expected, verdict.sentence
    assert alone.faulty_stage == expected, alone.sentence
    assert strangers(alone, planted) == []


def _found(truth: Truth, family: str, fault: str, folder: Path, quantization: str) -> tuple[Verdict, Verdict, Planted]:
    seed = list(FAULTS).index(fault)
    with Port(family, folder, truth.reference, seed, quantization) as port:
        planted = FAULTS[fault](port)
        return *truth.verdicts(port), planted
