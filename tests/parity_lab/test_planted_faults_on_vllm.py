"""A fault in a checkpoint computed by vLLM is named."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

from tests.support.faults_judged import Model
from tests.support.faults_on_ggml import Port, rope_base
from workbench.compare import compare, judge, noise_or_bug
from workbench.registry.registry import Registry


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_wrong_rope_base_on_vllm_is_named(registry: Registry, tmp_path: Path) -> None:
    model = Model("funasr_nano")
    with Port("funasr_nano", tmp_path, model.reference) as port:
        planted = rope_base(port)
        with registry.open(port.directory, runtime="vllm", kv_gigabytes=0.1, threads=1, dtype="float32") as session:
            trace = model.traced(session)
    verdict = judge(compare(model.reference, trace), noise_or_bug(model.reference, trace, model.exact))
    assert planted.stage == "llm.layers.0"
    assert verdict.faulty_stage == planted.stage and verdict.found_by == "tolerance and float64", verdict.sentence
