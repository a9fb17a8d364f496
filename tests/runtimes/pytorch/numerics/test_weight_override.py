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
from workbench.runtimes.pytorch.numerics.weight_override import (
    STORED_TYPE,
    nearest_rows,
    override_weights,
    registered_networks,
)

SAMPLE = assets() / "samples" / "three_seven_one.wav"


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 8), nn.LayerNorm(8)).double()
    return layers.requires_grad_(False)


def write_gguf(path: Path, weight: np.ndarray, kind: str = "Q8_0", name: str = "0.weight") -> Path:
    """A file with one tensor."""
    writer = gguf.GGUFWriter(path, "sensevoice-small")
    quantization = gguf.GGMLQuantizationType[kind]
    writer.add_tensor(name, gguf.quants.quantize(weight.astype(np.float32), quantization), raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_weights_replace_network_weights_and_record_their_stored_type(network: nn.Module, tmp_path: Path) -> None:
    original = network[0].weight.numpy().copy()
    path = write_gguf(tmp_path / "x.gguf", original)
    override_weights([network], str(path))
    distance = np.linalg.norm(network[0].weight.numpy() - original) / np.linalg.norm(original)
    assert 1e-3 < distance < 1e-2 and getattr(network[0].weight, STORED_TYPE) == "Q8_0"
    assert not hasattr(network[0].bias, STORED_TYPE), "the file has no bias"


def test_gguf_rows_that_differ_from_the_checkpoint_are_not_used(network: nn.Module, tmp_path: Path) -> None:
    """Otherwise a wrong conversion would be accepted as correct."""
    original = network[0].weight.numpy().copy()
    swapped = original.copy()
    swapped[[2, 5]] = swapped[[5, 2]]
    override_weights([network], str(write_gguf(tmp_path / "x.gguf", swapped)))
    result = network[0].weight.numpy()
    assert np.allclose(result[[2, 5]], original[[2, 5]], rtol=1e-6) and not np.allclose(
        result[0], original[0], rtol=1e-6
    )


def test_rows_within_the_quantisation_error_of_each_type_are_used() -> None:
    weight = np.random.default_rng(0).standard_normal((40, 256)).astype(np.float32)
    weight[3] *= 1e-3  # a row of small values
    for kind in ("Q8_0", "Q5_1", "Q4_0", "F16"):
        quantization = gguf.GGMLQuantizationType[kind]
        stored = gguf.quants.dequantize(gguf.quants.quantize(weight, quantization), quantization)
        assert np.array_equal(nearest_rows(weight, stored, kind), stored.astype(np.float32)), kind


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_weights_are_rounded_to_the_chosen_type(network: nn.Module, kind: str) -> None:
    original = network[0].weight.clone()
    override_weights([network], kind)
    assert torch.equal(network[0].weight, original.to(getattr(torch, kind)).double())


def test_unknown_type_or_gguf_of_another_model_is_refused(network: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="weights is 'int3'; expected bfloat16, float16 or the path of a GGUF file"):
        override_weights([network], "int3")
    path = write_gguf(tmp_path / "x.gguf", network[0].weight.numpy(), name="other")
    with pytest.raises(BadInput, match=r"x\.gguf has no tensor of this model"):
        override_weights([network], str(path))
    path = write_gguf(tmp_path / "y.gguf", network[0].weight.numpy()[:4])
    with pytest.raises(BadInput, match=r"tensor 0\.weight in y\.gguf has the shape"):
        override_weights([network], str(path))


def test_session_computes_with_rounded_weights_and_another_summation_order() -> None:
    """End to end; each further trace sums in another order."""
    logits = []
    for settings in (Settings(threads=1), Settings(threads=1, weights="bfloat16", summation=1)):
        spec = SessionSpec("demo", "sensevoice", "pytorch", assets() / "demo-sensevoice", settings)
        session = open_here(spec)
        logits += [session.trace(SAMPLE, stages="logits")["logits"] for _ in range(1 + (settings.summation > 0))]
        session.close()
    plain, rounded, reordered = logits
    rounding_error = np.linalg.norm(rounded - plain) / np.linalg.norm(plain)
    summation_error = np.linalg.norm(reordered - rounded) / np.linalg.norm(rounded)
    assert 1e-4 < rounding_error < 2e-2 and 0 < summation_error < 1e-5
    with registered_networks() as networks:
        assert networks == []
