"""Language models for vLLM: language halves of speech models, torch weight files, and unchanged directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from tests.support.tiny_funasr_nano import tiny_funasr_nano  # noqa: E402
from tests.support.tiny_language import change_json, tiny_language  # noqa: E402
from workbench.conversion.language_weights import read_language_weights  # noqa: E402
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of  # noqa: E402
from workbench.conversion.vllm_checkpoint.directory import write_directory  # noqa: E402
from workbench.core.errors import BadInput  # noqa: E402
from workbench.families.language.causal_lm import loads_unconverted  # noqa: E402


def test_language_half_of_a_speech_model_is_written_for_vllm(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "tiny")
    assert not loads_unconverted(directory, "causal_lm")
    write_directory(plan_of(directory, "causal_lm"), tmp_path / "served")
    config = json.loads((tmp_path / "served" / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"] and "speech_workbench" not in config
    network, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "served", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    tensors = torch.load(directory / "model.pt", weights_only=True)
    for name, value in network.state_dict().items():
        assert torch.equal(value, tensors[f"llm.{name}"]), name


@pytest.mark.parametrize("shards", [True, False])
def test_safetensors_directory_needs_no_conversion_for_vllm(shards: bool, tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", shards=shards)
    assert loads_unconverted(directory, "causal_lm") and not loads_unconverted(directory, "funasr_nano")
    change_json(directory / "config.json", architectures=None)  # vLLM chooses the files by it
    assert not loads_unconverted(directory, "causal_lm")


def test_directory_is_rewritten_for_vllm_if_vllm_would_load_other_weights_than_transformers(tmp_path: Path) -> None:
    # After a second save into a folder with shards, transformers loads the single file, and vLLM those of the index.
    directory = tiny_language(tmp_path / "tiny", shards=True)
    tiny_language(directory, seed=2)
    index = directory / "model.safetensors.index.json"
    assert (directory / "model.safetensors").is_file() and index.is_file()
    assert not loads_unconverted(directory, "causal_lm")
    write_directory(plan_of(directory, "causal_lm"), tmp_path / "served")
    expected = transformers.AutoModelForCausalLM.from_pretrained(directory).state_dict()
    tensors, _ = read_language_weights(tmp_path / "served")
    assert tensors and all(torch.equal(tensor, expected[name]) for name, tensor in tensors.items())
    index.unlink()
    assert loads_unconverted(directory, "causal_lm")
    (directory / "model-backup.safetensors").write_bytes((directory / "model.safetensors").read_bytes())
    assert not loads_unconverted(directory, "causal_lm")  # vLLM would load both


def test_pytorch_bin_weights_are_rewritten_as_safetensors(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", "qwen2")
    expected, _ = read_language_weights(directory)
    expected = {name: value.clone() for name, value in expected.items()}
    (directory / "model.safetensors").unlink()
    torch.save(expected, directory / "pytorch_model.bin")
    assert not loads_unconverted(directory, "causal_lm")
    write_directory(plan_of(directory, "causal_lm"), tmp_path / "served")
    tensors, _ = read_language_weights(tmp_path / "served")
    assert tensors.keys() == expected.keys() and all(torch.equal(tensors[name], expected[name]) for name in tensors)
    del expected["model.norm.weight"]
    torch.save(expected, directory / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"tiny lacks tensor model\.norm\.weight, which tiny/config\.json calls for"):
        plan_of(directory, "causal_lm")


def test_family_without_vllm_support_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="vLLM serves no models of the family 'sensevoice'; expected one of funasr_nano"):
        plan_of(tmp_path, "sensevoice")
