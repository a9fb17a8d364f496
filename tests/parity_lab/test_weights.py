"""A third-party GGUF file as a candidate: its stages are judged, and its weights compared with the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("llama_cpp")

from tests.support.faults_judged import SAMPLE
from workbench.artifacts import checks
from workbench.compare.weights.report import WeightReport
from workbench.conversion.check import check_file
from workbench.conversion.checkpoint import convert, plans_of
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import read_gguf
from workbench.parity_lab import run_parity, run_parity_on_inputs
from workbench.parity_lab.inputs import Input
from workbench.registry.registry import Registry
from workbench.registry.sources import assets

TENSOR = "encoder.encoders.1.self_attn.linear_out.bias"
HOW: dict[str, Any] = {"exact": False, "settings": {"threads": 1}}


def test_gguf_file_is_a_candidate_and_its_wrong_tensor_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[Path] = []

    def checked(directory: Path, family: str, file: Path, _: Any) -> WeightReport:
        files.append(file)
        return check_file(directory, family, file)

    monkeypatch.setattr(checks, "checked", checked)
    [file], _ = convert(plans_of(assets() / "demo-sensevoice", "sensevoice"), "f32", tmp_path / "port.gguf")
    with Registry(isolate=False) as registry:
        with run_parity(registry, "demo/sensevoice", SAMPLE, candidates=[str(file)], **HOW) as run:
            [right] = run.outcomes
            assert right.status == "within" and right.weights and not right.weights.differs
            assert "port.gguf" not in right.sentence
        info, content = read_gguf(file).tensors[TENSOR], bytearray(file.read_bytes())
        content[info.offset : info.offset + info.nbytes] = np.zeros(info.nbytes, np.uint8).tobytes()
        file.write_bytes(content)
        with run_parity(registry, "demo/sensevoice", SAMPLE, candidates=[str(file)], **HOW) as run:
            [wrong] = run.outcomes
            assert wrong.faulty_stage == "encoder.layers.2.attention" and wrong.status == "beyond"
            assert wrong.sentence.endswith(f" In port.gguf, {TENSOR} is zero.")
            report = run.to_dict()["candidates"][0]["weights"]
            assert report["tensors"][0]["tensor"] == TENSOR
        inputs = [Input("one", str(SAMPLE)), Input("two", str(SAMPLE))]
        runs = run_parity_on_inputs(registry, "demo/sensevoice", inputs, candidates=[str(file)], **HOW)
        assert runs.candidates[0].sentence.endswith(f" In port.gguf, {TENSOR} is zero.")
        assert runs.to_dict()["candidates"][0]["weights"] == report and len(files) == 3, "once for all inputs"
        with pytest.raises(BadInput, match="a model of the family sensevoice; expected one of paraformer"):
            run_parity(registry, "demo/paraformer", SAMPLE, candidates=[str(file)], **HOW)
