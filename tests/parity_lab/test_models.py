"""Parity of the demo models on their runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.parity_lab import run_parity
from workbench.registry.registry import Registry
from workbench.registry.sources import assets

SAMPLE = assets() / "samples" / "three_seven_one.wav"
pytestmark = pytest.mark.usefixtures("shared_cache")


def test_sensevoice_on_ggml_is_within_noise_and_missing_cmvn_is_found() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("llama_cpp")
    candidates = ["gguf:f32", "gguf:q8_0", "pytorch+cmvn=off"]
    with (
        Registry(isolate=False) as registry,  # five processes would take five times as long to start
        run_parity(registry, "demo/sensevoice", SAMPLE, candidates=candidates) as run,
    ):
        one, other, fault = run.outcomes
        assert (one.status, other.status, fault.status) == ("within", "within", "beyond")
        for each, preset in ((one, "f32"), (other, "q8_0")):
            assert each.comparison and each.noise and each.verdict
            assert each.comparison.tolerances.preset.name == preset
            assert each.verdict.tokens_agree and each.noise.first_bug is None
            assert set(run.reference.trace) == {stage.stage for stage in each.comparison.stages}
        assert fault.verdict and fault.verdict.first_divergent == "frontend.features"
        assert run.reference.trace.meta["dtype"] == "float32" and run.exact
        assert run.exact.trace["encoder.output"].dtype.itemsize == 8
    assert not run.folder.exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_funasr_nano_on_vllm_and_ggml_in_separate_processes_is_within_noise(registry: Registry, tmp_path: Path) -> None:
    for package in ("torch", "llama_cpp", "vllm"):
        pytest.importorskip(package)
    candidates = ["vllm+kv-gigabytes=0.1+threads=1", "gguf:f32"]
    with run_parity(registry, "demo/funasr-nano", SAMPLE, candidates=candidates) as run:
        for each in run.outcomes:
            assert each.status == "within", each.sentence
            assert each.verdict and each.verdict.tokens_agree
            assert each.comparison and each.comparison.tolerances.preset.name == "f32"
            assert each.noise and each.noise.first_bug is None
    assert registry.residents() == []
