"""Candidates in half precision are compared with the reference model in the same precision, and reported."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_lab import FakeRegistry
from tests.support.networks import computed
from workbench.cli.parity import lines
from workbench.compare import noise_or_bug
from workbench.compare.noise.spread import ORDERS
from workbench.compare.presets import half_precision_of
from workbench.core.errors import BadInput
from workbench.parity_lab import ParityRun, page, run_parity
from workbench.parity_lab.judgement.clean_spread import gguf_file_of
from workbench.trace.trace import Trace

PEER = {"dtype": "bfloat16", "stepwise": True, "summation": 1}


@pytest.fixture
def port(tmp_path: Path) -> str:
    """A correct port in bfloat16."""
    return str(computed("bfloat16", reverse=True).save(tmp_path / "port.safetensors"))


@pytest.fixture
def faulty_port(tmp_path: Path) -> str:
    """A port with a fault within the tolerance of bfloat16."""
    trace = computed("bfloat16", reverse=True, faults={"encoder.layers.3": lambda x: 1.02 * x})
    return str(trace.save(tmp_path / "wrong.safetensors"))


BESIDE = "this model in bfloat16 in 5 orders of summation, at most"


def parity(fakes: FakeRegistry, *candidates: str, **options: Any) -> ParityRun:
    return run_parity(fakes, "tiny", "talk.wav", candidates=candidates, **options)  # type: ignore[arg-type]


def test_fault_within_the_tolerance_of_half_precision_is_found(
    fakes: FakeRegistry, port: str, faulty_port: str
) -> None:
    with parity(fakes, port, faulty_port, "vllm:bfloat16") as run:
        assert [each.status for each in run.outcomes] == ["within", "beyond", "within"]
        assert [settings for _, settings, _ in fakes.traced if settings.get("stepwise")] == ORDERS * [PEER]
        verdict = run[faulty_port].verdict
        assert verdict and (verdict.faulty_stage, verdict.found_by) == ("encoder.layers.3", "float64")
        assert (
            "A bug, not noise: at encoder.layers.3 the candidate's distance from float64 " in run[faulty_port].sentence
        )
        assert "; that of this model in bfloat16 in 5 orders of summation is at most 0.00" in run[faulty_port].sentence
        assert "Arithmetic noise: at logits the candidate's distance from float64 is " in run[port].sentence
        assert run.to_dict()["same_precision"] == ["pytorch:bfloat16+stepwise=on"]
        noise = run.to_dict()["candidates"][1]["comparison"]["noise"]
        assert noise["beside"].startswith("this model in bfloat16 in 5 orders")
        assert noise["first_bug"] == "encoder.layers.3"
        text = unescape(page(run, figures=1))
        assert (
            "the same precision" in text and "this model in bfloat16 in 5 orders of summation is at most 0.00" in text
        )
    with parity(fakes, faulty_port, same_precision=False) as run:
        assert run.status == 0 and "Arithmetic noise" in run[faulty_port].sentence


@pytest.mark.parametrize("candidate", ["pytorch:bf16", "gguf:f16", "gguf:q8_0", "gguf", "vllm"])
def test_same_precision_reference_is_not_computed_for_other_candidates(fakes: FakeRegistry, candidate: str) -> None:
    with parity(fakes, candidate) as run:
        assert run.peers == () and not any(settings.get("stepwise") for _, settings, _ in fakes.traced)


def test_same_precision_reference_is_not_computed_without_float64(fakes: FakeRegistry, port: str) -> None:
    with parity(fakes, port, exact=False) as run:
        assert len(fakes.traced) == 1 and run.peers == () and run.outcomes[0].no_peer == ""


def test_unavailable_same_precision_reference_is_reported(fakes: FakeRegistry, faulty_port: str) -> None:
    fakes.no_steps = "it does not compute in bfloat16"
    with parity(fakes, faulty_port) as run:
        assert run.status == 0 and run.outcomes[0].no_peer == fakes.no_steps and run.outcomes[0].noise
        message = (
            f"{faulty_port} is not compared with this model in the same precision: it does not compute in bfloat16"
        )
        assert message in list(lines(run)) and run.to_dict()["candidates"][0]["no_peer"] == fakes.no_steps
        assert "not compared with this model in the same precision: it does not" in page(run)


def test_isolated_same_precision_reference_uses_the_reference_stages(fakes: FakeRegistry) -> None:
    fakes.faults["vllm"] = {"encoder.layers.3": lambda x: 1.02 * x}
    with parity(fakes, "pytorch:bf16+dither=1", "gguf", isolated=True) as run:
        assert [each.trace.meta["isolated"] for each in run.peers] == [True]
        assert run.outcomes[0].noise and run.outcomes[0].noise.beside == BESIDE
        assert run.outcomes[1].noise and run.outcomes[1].noise.beside == "the reference"


def test_progress_includes_the_same_precision_reference(fakes: FakeRegistry, port: str) -> None:
    shares: list[float] = []
    parity(fakes, port, on_progress=lambda share, _: shares.append(share)).close()
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1


def test_half_precision_is_detected_from_arithmetic_dtype_not_stored_weights() -> None:
    assert (
        half_precision_of({"dtype": "torch.bfloat16"}) == "bfloat16"
        and half_precision_of({"dtype": "fp16"}) == "float16"
    )
    others = ({}, {"dtype": "float32"}, {"dtype": "bfloat16", "quantization": "bf16"}, {"dtype": "q8_0"}, {"dtype": 16})
    assert [half_precision_of(meta) for meta in others] == [None] * len(others)


def test_peer_with_another_precision_input_or_mode_is_refused() -> None:
    port, exact = computed("bfloat16", reverse=True), computed("float64")
    other = Trace(computed("bfloat16"), {"dtype": "bfloat16", "input_digest": "other"})
    isolated = computed("bfloat16", given=computed())
    for peer, message in (
        (computed("float16"), r"has float16 and the candidate bfloat16; expected both in bfloat16, or both in"),
        (computed(), "has float32 and the candidate bfloat16"),
        (other, "and the float64 trace have different inputs"),
        (isolated, "one from substituted stages, one end to end"),
    ):
        with pytest.raises(BadInput, match=message):
            noise_or_bug(computed(), port, exact, peer=peer)


def test_gguf_model_is_refused_where_a_checkpoint_is_needed() -> None:
    registry = SimpleNamespace(card=lambda model: SimpleNamespace(id="x.gguf", kind="gguf"))
    with pytest.raises(
        BadInput, match=r"^x\.gguf is a GGUF file, and PyTorch opens checkpoints; expected a checkpoint"
    ):
        gguf_file_of(registry, "x.gguf")("q8_0")
