"""Fun-ASR-Nano GGUF files: one file with speech encoder and language model, or FunASR's pair of files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conversion.reading import assert_holds, converted_file, flat
from tests.support.tiny_funasr_nano import LANGUAGE_DIRECTORY, add_lora, tiny_funasr_nano
from workbench.core.errors import BadInput
from workbench.families.speech_llm.funasr_nano import read_funasr_nano
from workbench.formats.quantization import TYPES
from workbench.registry.sources import assets
from workbench.runtimes.pytorch.funasr_nano import read_parts

BLOCK = {  # llama.cpp's names of a block's tensors by transformers', as its documentation has them
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
}


def llama_names(layers: int, prefix: str = "") -> dict[str, str]:
    """llama.cpp's names of all tensors of a language model, by the checkpoint's."""
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    names |= {
        f"model.layers.{layer}.{original}": f"blk.{layer}.{converted}"
        for layer in range(layers)
        for original, converted in BLOCK.items()
    }
    return {prefix + original: converted for original, converted in names.items()}


@pytest.mark.parametrize("name", TYPES)
def test_demo_funasr_nano_is_converted_in_every_quantisation(name: str, tmp_path: Path) -> None:
    directory = assets() / "demo-funasr-nano"
    (read,) = converted_file(directory, "funasr_nano", name, tmp_path / "it.gguf")
    tensors = torch.load(directory / "model.pt", weights_only=True)
    tensors.pop("llm.lm_head.weight", None)  # tied to the embeddings
    assert_holds(read, flat(tensors, llama_names(4, "llm.")))
    assert read.types["blk.0.ffn_down.weight"] == name
    assert read.types["token_embd.weight"] == ("q8_0" if name[:2] in ("q4", "q5") else name)
    for part in ("norm", "bias", "fsmn_block"):
        assert {read.types[each] for each in read.types if part in each} == {"f32"}
    assert read.keys["general.architecture"] == "funasr-nano"
    assert read.keys["workbench.language.architecture"] == "qwen3" and read.keys["qwen3.block_count"] == 4
    assert read.keys["funasr.adp.downsample_rate"] == 8 and read.keys["funasr.enc.sanm_shfit"] == 0
    language = directory / "Qwen3-demo"
    stored = {"config.yaml", "configuration.json", *(f"Qwen3-demo/{path.name}" for path in language.iterdir())}
    assert read.files == {each: (directory / each).read_bytes() for each in stored}


def test_ctc_decoder_is_not_converted(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "tiny", dtype=torch.bfloat16)
    tensors = torch.load(directory / "model.pt", weights_only=True)
    torch.save({**tensors, "ctc_decoder.linear1.weight": torch.zeros(4, 4)}, directory / "model.pt")
    tied = "llm.lm_head.weight"
    expected = flat(tensors, llama_names(3, "llm."))
    (read,) = converted_file(directory, "funasr_nano", "bf16", tmp_path / "it.gguf")
    assert tied in tensors and "output.weight" in expected  # this one's output matrix is its own
    assert_holds(read, expected)


def test_tied_output_matrix_is_omitted_only_if_equal_to_the_embeddings(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "tiny")
    config = directory / LANGUAGE_DIRECTORY / "config.json"
    config.write_text(config.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    tensors = torch.load(directory / "model.pt", weights_only=True)
    (read,) = converted_file(directory, "funasr_nano", "f32", tmp_path / "it.gguf")
    assert "output.weight" in read.types  # it differs: transformers does not tie it either
    tensors["llm.lm_head.weight"] = tensors["llm.model.embed_tokens.weight"].clone()
    torch.save(tensors, directory / "model.pt")
    (read,) = converted_file(directory, "funasr_nano", "f32", tmp_path / "it.gguf")
    assert "output.weight" not in read.types
    del tensors["llm.lm_head.weight"]
    torch.save(tensors, directory / "model.pt")
    (read,) = converted_file(directory, "funasr_nano", "f32", tmp_path / "it.gguf")
    assert "output.weight" not in read.types
    del tensors["llm.model.embed_tokens.weight"]
    torch.save(tensors, directory / "model.pt")
    with pytest.raises(BadInput, match=r"lacks tensor model\.embed_tokens\.weight"):
        converted_file(directory, "funasr_nano", "f32", tmp_path / "it.gguf")


def test_funasr_layout_writes_encoder_and_language_model_files(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "tiny")
    tensors = torch.load(directory / "model.pt", weights_only=True)
    encoder, half = converted_file(directory, "funasr_nano", "q8_0", tmp_path / "pair.gguf", "funasr")
    assert sorted(path.name for path in tmp_path.glob("*.gguf")) == ["pair-llm.gguf", "pair.gguf"]
    assert_holds(encoder, flat({name: value for name, value in tensors.items() if not name.startswith("llm.")}))
    language = {name: value for name, value in tensors.items() if name.startswith("llm.")}
    assert_holds(half, flat(language, llama_names(3, "llm.")))
    assert half.keys["general.architecture"] == "qwen3" and half.keys["general.file_type"] == 7
    assert half.keys["general.name"] == LANGUAGE_DIRECTORY
    assert not any(key.startswith("workbench.") for key in (*encoder.keys, *half.keys))


def test_files_hold_the_language_model_with_lora_added(tmp_path: Path) -> None:
    directory = add_lora(tiny_funasr_nano(tmp_path / "it"))
    (whole,) = converted_file(directory, "funasr_nano", "f32", tmp_path / "whole.gguf")
    (half,) = converted_file(directory, "causal_lm", "f32", tmp_path / "half.gguf")
    _, tensors = read_parts(read_funasr_nano(directory))
    for layer in range(3):
        expected = tensors[f"model.layers.{layer}.self_attn.q_proj.weight"].numpy()
        for read in (whole, half):
            np.testing.assert_array_equal(read.values[f"blk.{layer}.attn_q.weight"], expected)
    assert not any("lora" in name for name in (*whole.types, *half.types))
