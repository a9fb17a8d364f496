"""SeACo's hotwords on ggml against PyTorch on the same weights: every stage, types, and files without the branch."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.reference.checkpoints import ODD_PARAFORMER, SMALL_PARAFORMER, ParaformerSize, write_paraformer
from tests.runtimes.gguf.test_paraformer import SETTINGS, file_of
from tests.support.gguf_encoders import cosine
from tests.support.tiny_checkpoints import noise
from workbench.conversion import paraformer
from workbench.core.errors import BadInput
from workbench.families.sanm.seaco import BRANCH, EMBEDDING, FILTERED
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.paraformer import open_session
from workbench.runtimes.pytorch import paraformer as pytorch
from workbench.trace.order import computation_order
from workbench.trace.trace import Trace

FEW = ("a", "b c", "d e f", "a b c d")
MANY = tuple(f"{a} {b}" for a in "abcdefgh" for b in "ijklmnop")  # more than a recording keeps
VARIANTS: dict[str, tuple[ParaformerSize, dict[str, Any]]] = {
    "small": (SMALL_PARAFORMER, {"predictor": "CifPredictorV3", "seaco": {}}),
    "odd": (ODD_PARAFORMER, {"seaco": {"bias_encoder_bid": True, "NO_BIAS": 3}}),
}


@pytest.fixture(scope="module", params=VARIANTS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    size, variant = VARIANTS[request.param]
    directory = write_paraformer(tmp_path_factory.mktemp("seaco") / "it", size, **variant)
    (directory / "seg_dict").unlink()  # letters are pieces
    (directory / "configuration.json").unlink()
    return directory


def assert_alike(trace: Trace, reference: Trace, least: float) -> None:
    assert {*trace} == {*reference}
    for name in reference:
        values, expected = trace[name], reference[name]
        assert values.shape == expected.shape, name
        if values.dtype == np.float32 and values.size:
            assert cosine(values, expected) >= least, name
    np.testing.assert_array_equal(trace["tokens"], reference["tokens"])


@pytest.mark.parametrize("hotwords", [FEW, MANY], ids=["few", "filtered"])
@pytest.mark.parametrize("stages", ["*", "seaco_*.layers.*.*,bias_encoder.output"])
def test_every_stage_equals_pytorch(directory: Path, tmp_path: Path, hotwords: tuple[str, ...], stages: str) -> None:
    with (
        closing(open_session(file_of(directory, tmp_path / "it.gguf"), "it", SETTINGS)) as session,
        closing(pytorch.open_session(directory, "it", SETTINGS)) as reference,
    ):
        stages = stages if stages == "*" else f"{stages},tokens"
        traces = [each.trace(noise(3.0), stages, hotwords=list(hotwords)) for each in (session, reference)]
    assert_alike(*traces, least=0.999999)
    assert ("seaco_filter.scores" in traces[0]) == (stages == "*" and len(hotwords) >= FILTERED)
    if stages != "*":
        assert {"seaco_cif.layers.0.cross_attention.weights", "seaco_decoder.layers.6.mlp.up"} <= {*traces[0]}
        return
    recorded = [stage for stage in traces[0] if stage.startswith(("bias_encoder", "seaco"))]
    assert recorded == [stage for stage in traces[1] if stage in recorded] == computation_order(recorded)
    plain, biased = traces[0]["seaco.decoder.logits"], traces[0]["seaco.logits"]
    chosen = {*np.flatnonzero(traces[0]["tokens"] == biased.argmax(axis=1))}
    kept = {*np.flatnonzero(traces[0]["tokens"] == plain.argmax(axis=1))}
    assert chosen | kept == {*range(len(plain))} and chosen - kept and kept - chosen


@pytest.mark.parametrize("quantization", ["f16", "q8_0", "q5_0"])
def test_other_types_hear_nearly_the_same(directory: Path, tmp_path: Path, quantization: str) -> None:
    path = file_of(directory, tmp_path / "it.gguf", quantization)
    assert {EMBEDDING, "bias_encoder.weight_hh_l1", "seaco_decoder.after_norm.weight"} <= {*read_gguf(path).tensors}
    with (
        closing(open_session(path, "it", SETTINGS)) as session,
        closing(pytorch.open_session(directory, "it", SETTINGS)) as reference,
    ):
        vectors = [
            each.trace(noise(2.0), "bias_encoder.output", hotwords=list(FEW))["bias_encoder.output"]
            for each in (session, reference)
        ]
        assert session.transcribe(noise(2.0), hotwords=list(FEW)).tokens
    assert cosine(*vectors) > {"f16": 0.99999, "q8_0": 0.999, "q5_0": 0.98}[quantization]


def test_file_in_funasr_layout_has_no_branch_and_says_so(directory: Path, tmp_path: Path) -> None:
    [plan] = paraformer.plans(directory, "funasr")
    assert any("hotwords" in note for note in plan.notes)
    path = file_of(directory, tmp_path / "it.gguf", layout="funasr")
    assert not any(name.startswith(tuple(glob[:-1] for glob in BRANCH)) for name in read_gguf(path).tensors)


def test_file_without_the_branch_still_hears_and_refuses_hotwords(directory: Path, tmp_path: Path) -> None:
    """Files of older versions are such."""
    tensors = torch.load(directory / "model.pt", weights_only=True)
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in directory.iterdir():
        (bare / path.name).write_bytes(path.read_bytes())
    branch = tuple(glob[:-1] for glob in BRANCH)
    torch.save({name: value for name, value in tensors.items() if not name.startswith(branch)}, bare / "model.pt")
    with closing(open_session(file_of(bare, tmp_path / "it.gguf"), "it", SETTINGS)) as session:
        assert session.transcribe(noise(2.0)).tokens
        with pytest.raises(BadInput, match="an older GGUF file gets it by a new conversion"):
            session.transcribe(noise(2.0), hotwords=["a"])
