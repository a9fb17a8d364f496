"""Networks with replaced weights: rounded to a type, or read from a GGUF file made of the same checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("gguf")

import gguf
import torch
from torch import nn

from workbench.core.errors import BadInput
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
from workbench.registry.sources import assets
from workbench.runtimes.pytorch.chosen_weights import STORED_TYPE, choose_weights, nearest_rows, noted_networks

SAMPLE = assets() / "samples" / "three_seven_one.wav"


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    found = nn.Sequential(nn.Linear(64, 8), nn.LayerNorm(8)).double()
    return found.requires_grad_(False)


def written(path: Path, weight: np.ndarray, kind: str = "Q8_0", name: str = "0.weight") -> Path:
    """A file with one tensor."""
    writer = gguf.GGUFWriter(path, "sensevoice-small")
    quantised = gguf.GGMLQuantizationType[kind]
    writer.add_tensor(name, gguf.quants.quantize(weight.astype(np.float32), quantised), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_weights_replace_network_weights_and_record_their_stored_type(network: nn.Module, tmp_path: Path) -> None:
    before = network[0].weight.numpy().copy()
    path = written(tmp_path / "x.gguf", before)
    choose_weights([network], str(path))
    apart = np.linalg.norm(network[0].weight.numpy() - before) / np.linalg.norm(before)
    assert 1e-3 < apart < 1e-2 and getattr(network[0].weight, STORED_TYPE) == "Q8_0"
    assert not hasattr(network[0].bias, STORED_TYPE), "the file does not have it"


def test_gguf_rows_that_differ_from_the_checkpoint_are_not_used(network: nn.Module, tmp_path: Path) -> None:
    """Else a wrong conversion would be taken for the truth."""
    before = network[0].weight.numpy().copy()
    wrong = before.copy()
    wrong[[2, 5]] = wrong[[5, 2]]
    choose_weights([network], str(written(tmp_path / "x.gguf", wrong)))
    after = network[0].weight.numpy()
    assert np.allclose(after[[2, 5]], before[[2, 5]], rtol=1e-6) and not np.allclose(after[0], before[0], rtol=1e-6)


def test_rows_within_the_quantisation_error_of_each_type_are_used() -> None:
    weight = np.random.default_rng(0).standard_normal((40, 256)).astype(np.float32)
    weight[3] *= 1e-3  # a row of small values
    for kind in ("Q8_0", "Q5_1", "Q4_0", "F16"):
        quantised = gguf.GGMLQuantizationType[kind]
        stored = gguf.quants.dequantize(gguf.quants.quantize(weight, quantised), quantised)
        assert np.array_equal(nearest_rows(weight, stored, kind), stored.astype(np.float32)), kind


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_weights_are_rounded_to_the_chosen_type(network: nn.Module, kind: str) -> None:
    before = network[0].weight.clone()
    choose_weights([network], kind)
    assert torch.equal(network[0].weight, before.to(getattr(torch, kind)).double())


def test_unknown_type_or_gguf_of_another_model_is_refused(network: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="weights is 'int3'; expected bfloat16, float16 or the path of a GGUF file"):
        choose_weights([network], "int3")
    path = written(tmp_path / "x.gguf", network[0].weight.numpy(), name="other")
    with pytest.raises(BadInput, match=r"x\.gguf has no tensor of this model"):
        choose_weights([network], str(path))
    path = written(tmp_path / "y.gguf", network[0].weight.numpy()[:4])
    with pytest.raises(BadInput, match=r"tensor 0\.weight in y\.gguf has the shape"):
        choose_weights([network], str(path))


def test_session_computes_with_rounded_weights_and_another_summation_order() -> None:
    """End to end, each later trace with its sums in another order."""
    found = []
    for settings in (Settings(threads=1), Settings(threads=1, weights="bfloat16", summation=1)):
        spec = SessionSpec("demo", "sensevoice", "pytorch", assets() / "demo-sensevoice", settings)
        session = open_here(spec)
        found += [session.trace(SAMPLE, stages="logits")["logits"] for _ in range(1 + (settings.summation > 0))]
        session.close()
    plain, one, other = found
    far = np.linalg.norm(one - plain) / np.linalg.norm(plain)
    between = np.linalg.norm(other - one) / np.linalg.norm(one)
    assert 1e-4 < far < 2e-2 and 0 < between < 1e-5
    with noted_networks() as networks:
        assert networks == []
