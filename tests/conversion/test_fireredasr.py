"""FireRedASR-LLM GGUF files: LoRA is merged into the weights, as PyTorch computes it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conversion.reading import assert_holds, converted_file, flat
from tests.conversion.test_funasr_nano import llama_names
from tests.support.tiny_fireredasr import tiny_fireredasr
from workbench.audio.cmvn import read_cmvn_ark
from workbench.conversion import writer
from workbench.conversion.checkpoint import plans_of
from workbench.conversion.child import directories_outside
from workbench.core.errors import BadInput
from workbench.families.speech_llm.fireredasr import CMVN, LANGUAGE_DIRECTORY, WEIGHTS
from workbench.formats.quantization import TYPES
from workbench.registry.sources import assets
from workbench.runtimes.pytorch.fireredasr import open_fireredasr_language, read_checkpoint


def expected_tensors(directory: Path) -> dict[str, np.ndarray]:
    """Returns the tensors that PyTorch computes with: encoder, adapter, merged language model and CMVN."""
    checkpoint = read_checkpoint(directory)
    half = open_fireredasr_language(checkpoint, torch.device("cpu"), "float32")
    language = {name: value for name, value in half.network.state_dict().items() if "rotary" not in name}
    cmvn = read_cmvn_ark(directory / CMVN)
    return {
        **flat(checkpoint.audio),
        **flat(language, llama_names(checkpoint.model.language.layers)),
        "cmvn.shift": cmvn.shift,
        "cmvn.scale": cmvn.scale,
    }


@pytest.mark.parametrize("name", TYPES)
def test_demo_fireredasr_is_converted_in_every_quantisation(name: str, tmp_path: Path) -> None:
    directory = assets() / "demo-fireredasr"
    (read,) = converted_file(directory, "fireredasr", name, tmp_path / "it.gguf")
    expected = expected_tensors(directory)
    assert {each: array.shape for each, array in expected.items()} == read.shapes
    # Sums in chunks may round otherwise, so quantised values may differ by a quantisation step.
    tolerance = {"f32": 1e-6, "f16": 1e-3, "bf16": 8e-3, "q8_0": 8e-3}.get(name, 0.13)
    for each, array in expected.items():
        allowed = 1e-6 if read.types[each] == "f32" else tolerance
        assert np.abs(read.values[each] - array).max() <= allowed * max(np.abs(array).max(), 1e-3), each
    assert read.types["blk.0.ffn_down.weight"] == name
    assert read.types["output.weight"] == ("q8_0" if name[:2] in ("q4", "q5") else name)
    for part in ("norm", "bias", "depthwise_conv", "input_preprocessor.conv", "cmvn"):
        types = {read.types[each] for each in read.types if part in each}
        assert types == {"f32"}, part
    assert read.types["encoder.layer_stack.0.conv.pointwise_conv1.weight"] in (name, "f16")
    language = sorted(path for path in (directory / "Qwen2-demo").iterdir() if path.suffix != ".safetensors")
    stored = {CMVN, *(f"Qwen2-demo/{path.name}" for path in language)}
    assert read.files == {each: (directory / each).read_bytes() for each in stored}


def test_training_arguments_are_stored_as_json(tmp_path: Path) -> None:
    directory = tiny_fireredasr(tmp_path / "tiny", lora_alpha=32, length_rule="head")
    (read,) = converted_file(directory, "fireredasr", "f16", tmp_path / "it.gguf")
    document = json.loads(read.keys["workbench.arguments"])
    assert document["model"]["lora_alpha"] == 32 and document["model"]["length_rule"] == "head"
    assert document["encoder"]["n_layers_enc"] == 2 and document["encoder"]["residual_dropout"] == 0.1
    assert read.keys["general.architecture"] == "fireredasr-llm"
    assert read.keys["workbench.language.architecture"] == "qwen2" and read.keys["qwen2.block_count"] == 3
    assert f"{LANGUAGE_DIRECTORY}/tokenizer.json" in read.files and CMVN in read.files
    assert "encoder.positional_encoding.pe" not in read.types


@pytest.mark.parametrize("rows", [1, 7, 10**6])
def test_lora_merge_is_independent_of_the_chunk_size(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHUNK_VALUES", 64 * rows)
    directory = tiny_fireredasr(tmp_path / "tiny", lora_alpha=8)
    (read,) = converted_file(directory, "fireredasr", "f32", tmp_path / "it.gguf")
    expected = expected_tensors(directory)
    assert {each: array.shape for each, array in expected.items()} == read.shapes
    for each, array in expected.items():
        np.testing.assert_allclose(read.values[each], array, rtol=0, atol=1e-6, err_msg=each)


def test_checkpoint_with_complete_language_weights_needs_no_base_model(tmp_path: Path) -> None:
    directory = tiny_fireredasr(tmp_path / "tiny")
    merged = open_fireredasr_language(read_checkpoint(directory), torch.device("cpu"), "float32").network.state_dict()
    package = torch.load(directory / WEIGHTS, weights_only=False)
    package["model_state_dict"] = {
        **{each: value for each, value in package["model_state_dict"].items() if not each.startswith("llm.")},
        **{f"llm.{each}": value for each, value in merged.items()},
    }
    torch.save(package, directory / WEIGHTS)
    (directory / LANGUAGE_DIRECTORY / "model.safetensors").unlink()
    (read,) = converted_file(directory, "fireredasr", "f32", tmp_path / "it.gguf")
    assert_holds(read, expected_tensors(directory))


def test_lora_weights_for_another_base_model_are_refused(tmp_path: Path) -> None:
    directory = tiny_fireredasr(tmp_path / "tiny")
    package = torch.load(directory / WEIGHTS, weights_only=False)
    name = "llm.base_model.model.model.layers.0.mlp.up_proj.lora_B.default.weight"
    package["model_state_dict"][name] = torch.zeros(3, 4)
    torch.save(package, directory / WEIGHTS)
    with pytest.raises(BadInput, match=r"LoRA weights for another base.*up_proj\.lora_B has shape \(3, 4\)"):
        plans_of(directory, "fireredasr")
    with pytest.raises(BadInput, match="FunASR has no layout for tiny, a FireRedASR-LLM"):
        plans_of(directory, "fireredasr", "funasr")


def test_language_model_outside_the_checkpoint_is_listed_as_a_source(tmp_path: Path) -> None:
    directory = tiny_fireredasr(tmp_path / "tiny")
    (directory / LANGUAGE_DIRECTORY).rename(tmp_path / LANGUAGE_DIRECTORY)
    [plan] = plans_of(directory, "fireredasr")
    assert directories_outside(plan.sources, directory) == [str((tmp_path / LANGUAGE_DIRECTORY).resolve())]
    (tmp_path / LANGUAGE_DIRECTORY).rename(directory / LANGUAGE_DIRECTORY)
    [plan] = plans_of(directory, "fireredasr")
    assert directories_outside(plan.sources, directory) == []
