"""Language models converted to llama.cpp files: same logits and tokens as in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
import torch
import transformers

from tests.conversion.reading import Read, assert_holds, converted_file, flat
from tests.conversion.test_funasr_nano import llama_names
from tests.support.tiny_language import change_json, tiny_language
from workbench.conversion.checkpoint import plans_of
from workbench.core.errors import BadInput
from workbench.families.language.directory import LanguageTokenizer
from workbench.formats.quantization import TYPES
from workbench.registry.sources import assets

IDS = [1, 5, 9, 100, 33, 7, 456, 20, 311, 2]
TEXT = "<|im_start|>user\nHello wörld, it's 12345  spaces\n\n你好<|im_end|>\n<think>"
F32_CACHE = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32}


def network_of(directory: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, local_files_only=True)


def logits_of(network: Any) -> np.ndarray:
    with torch.no_grad():
        logits: np.ndarray = network(torch.tensor([IDS])).logits[0].numpy()
    return logits


def loaded(path: Path) -> llama_cpp.Llama:
    return llama_cpp.Llama(str(path), n_ctx=64, n_threads=1, logits_all=True, verbose=False, **F32_CACHE)


def llama_logits(model: llama_cpp.Llama) -> np.ndarray:
    model.eval(IDS)
    return np.array(model.scores[: len(IDS)])


YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
CHANGES: dict[str, dict[str, Any]] = {
    "tied qwen3": {"kind": "qwen3", "tie_word_embeddings": True},
    "wide heads": {"kind": "qwen3", "head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "qwen2 in parts": {"kind": "qwen2", "shards": True, "tie_word_embeddings": False, "rms_norm_eps": 1e-3},
    "tied qwen2": {"kind": "qwen2", "tie_word_embeddings": True, "num_key_value_heads": 4},
    "linear qwen2": {"kind": "qwen2", "rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}},
    "yarn qwen3": {"kind": "qwen3", "head_dim": 32, "rope_parameters": YARN},
}


@pytest.mark.parametrize("case", CHANGES)
def test_llama_cpp_logits_and_tokens_equal_those_of_transformers(case: str, tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", **CHANGES[case])
    (read,) = converted_file(directory, "causal_lm", "f32", tmp_path / "it.gguf")
    expected = logits_of(network_of(directory))
    model = loaded(tmp_path / "it.gguf")
    try:
        np.testing.assert_allclose(llama_logits(model), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
        tokenizer = LanguageTokenizer.read(directory)
        assert model.tokenize(TEXT.encode(), add_bos=False, special=True) == tokenizer.encode(TEXT)
        assert model.tokenize(TEXT.encode(), add_bos=True, special=True) == tokenizer.encode(TEXT)
        assert model.token_eos() == tokenizer.special_ids["eos"]
        assert model.n_vocab() == 512
    finally:
        model.close()
    assert ("output.weight" in read.types) == (not CHANGES[case].get("tie_word_embeddings", False))


def test_llama_cpp_adds_the_bos_token_if_the_tokenizer_does(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", "qwen2")
    bos = {"id": "<|im_start|>", "type_id": 0}
    template = [{"SpecialToken": bos}, {"Sequence": {"id": "A", "type_id": 0}}]
    token = {"id": bos["id"], "ids": [457], "tokens": [bos["id"]]}
    processor = {
        "type": "TemplateProcessing",
        "single": template,
        "pair": template,
        "special_tokens": {bos["id"]: token},
    }
    change_json(directory / "tokenizer.json", post_processor=processor)
    change_json(directory / "tokenizer_config.json", bos_token=bos["id"], tokenizer_class="PreTrainedTokenizerFast")
    expected = LanguageTokenizer.read(directory).encode("ab", begin=True)
    assert expected[0] == 457
    converted_file(directory, "causal_lm", "f32", tmp_path / "it.gguf")
    model = loaded(tmp_path / "it.gguf")
    try:
        assert model.tokenize(b"ab") == expected
    finally:
        model.close()


@pytest.mark.parametrize("name", TYPES)
def test_demo_language_model_is_converted_in_every_quantisation(name: str, tmp_path: Path) -> None:
    """The language half of the demo Fun-ASR-Nano alone."""
    directory = assets() / "demo-funasr-nano"
    (read,) = converted_file(directory, "causal_lm", name, tmp_path / "it.gguf")
    tensors = torch.load(directory / "model.pt", weights_only=True)
    language_tensors = {
        each: value for each, value in tensors.items() if each.startswith("llm.") and "lm_head" not in each
    }
    assert_holds(read, flat(language_tensors, llama_names(4, "llm.")))
    assert read.keys["general.architecture"] == "qwen3" and read.keys["workbench.family"] == "causal_lm"
    language = directory / "Qwen3-demo"
    assert read.files == {path.name: path.read_bytes() for path in language.iterdir()}
    network = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(language))
    network.load_state_dict(
        {each.removeprefix("llm."): value.float() for each, value in language_tensors.items()}, strict=False
    )
    expected = logits_of(network.eval())
    model = loaded(tmp_path / "it.gguf")
    try:
        logits = llama_logits(model)
    finally:
        model.close()
    similarity = (logits * expected).sum() / (np.linalg.norm(logits) * np.linalg.norm(expected))
    assert similarity > {"f32": 0.999999, "f16": 0.99999, "bf16": 0.999, "q8_0": 0.999}.get(name, 0.97)
    if name == "f32":
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)


def test_gguf_keys_and_vocabulary_match_the_checkpoint(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", "qwen3", bos_token_id=456)
    change_json(directory / "tokenizer_config.json", chat_template="{{ messages[0].content }}")
    (directory / "README.md").write_text("a card")
    (read,) = converted_file(directory, "causal_lm", "q8_0", tmp_path / "it.gguf")
    expected = {
        "general.architecture": "qwen3",
        "general.name": "tiny",
        "general.file_type": 7,
        "general.quantization_version": 2,
        "qwen3.block_count": 3,
        "qwen3.context_length": 256,
        "qwen3.embedding_length": 32,
        "qwen3.feed_forward_length": 64,
        "qwen3.attention.head_count": 4,
        "qwen3.attention.head_count_kv": 2,
        "qwen3.attention.key_length": 8,
        "qwen3.attention.value_length": 8,
        "qwen3.vocab_size": 512,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.bos_token_id": 456,
        "tokenizer.ggml.eos_token_id": 458,
        "tokenizer.ggml.padding_token_id": 456,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    assert {key: read.keys[key] for key in expected} == expected
    definition = json.loads((directory / "tokenizer.json").read_text())
    tokens, types = read.keys["tokenizer.ggml.tokens"], read.keys["tokenizer.ggml.token_type"]
    assert len(tokens) == len(types) == 512 and len(set(tokens)) == 512
    for token, number in definition["model"]["vocab"].items():
        assert (tokens[number], types[number]) == (token, 1)
    for added in definition["added_tokens"]:
        assert (tokens[added["id"]], types[added["id"]]) == (added["content"], 3 if added["special"] else 4)
    known = len(definition["model"]["vocab"]) + len(definition["added_tokens"])
    assert tokens[known:] == [f"[PAD{number}]" for number in range(known, 512)] and set(types[known:]) == {5}
    assert read.keys["tokenizer.ggml.merges"] == [" ".join(each) for each in definition["model"]["merges"]]
    assert "README.md" not in read.files and "model.safetensors" not in read.files


def test_tokenizer_without_tokenizer_json_is_converted(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", "qwen2")
    (with_json,) = converted_file(directory, "causal_lm", "f32", tmp_path / "it.gguf")
    (directory / "tokenizer.json").unlink()
    (without,) = converted_file(directory, "causal_lm", "f32", tmp_path / "it.gguf")
    for key in ("tokens", "token_type", "merges"):
        assert without.keys[f"tokenizer.ggml.{key}"] == with_json.keys[f"tokenizer.ggml.{key}"]


@pytest.mark.parametrize(
    "change, words",
    [
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}},
            "rope_type in tiny.* is 'dynamic'; default, lin",
        ),
        ({"rope_parameters": YARN | {"beta_fast": 16}}, "beta_fast of yarn in tiny/config.json is 16; only 32 is conv"),
        ({"rope_parameters": YARN | {"attention_factor": 2.0}}, "attention_factor of yarn in tiny/config.json is 2.0"),
        ({"rope_parameters": YARN | {"factor": 0.5}}, "factor of the positions in tiny/config.json is 0.5; expected"),
        ({"hidden_act": "gelu"}, "hidden_act in tiny/config.json is 'gelu'; only 'silu'"),
        ({"use_sliding_window": True}, "use_sliding_window in tiny/config.json is True"),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            r"quantization_config in tiny/config.json is {.*gptq.*None",
        ),
        ({"rope_parameters": {"rope_theta": "1e6", "rope_type": "default"}}, "tiny/config.json describes no network: "),
        ({"num_hidden_layers": 4}, r"lacks tensor model\.layers\.3"),
        ({"intermediate_size": 96}, "has shape"),
    ],
)
def test_configuration_unsupported_by_llama_cpp_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", "qwen3")
    change_json(directory / "config.json", **change, layer_types=None)
    with pytest.raises(BadInput, match=words):
        plans_of(directory, "causal_lm")


def test_biases_of_qwen3_attention_are_those_of_transformers(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", "qwen3", attention_bias=True)
    network = network_of(directory)
    biases = {name: value for name, value in network.named_parameters() if name.endswith("_proj.bias")}
    for name, value in biases.items():
        torch.nn.init.normal_(value) if "o_proj" not in name else torch.nn.init.zeros_(value)
    network.save_pretrained(directory)
    converted_file(directory, "causal_lm", "f32", tmp_path / "it.gguf")
    model = loaded(tmp_path / "it.gguf")
    try:
        expected = logits_of(network)
        np.testing.assert_allclose(llama_logits(model), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    finally:
        model.close()
    torch.nn.init.normal_(biases["model.layers.1.self_attn.o_proj.bias"])
    network.save_pretrained(directory)
    with pytest.raises(
        BadInput, match=r"other than 0 in model\.layers\.1\.self_attn\.o_proj\.bias, which llama.cpp does"
    ):
        plans_of(directory, "causal_lm")


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_other_architecture_raises_an_error_that_names_the_llama_cpp_converter(kind: str, tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", kind)
    with pytest.raises(BadInput, match=f"tiny is a {kind} model.*llama.cpp's own convert_hf_to_gguf.py"):
        plans_of(directory, "causal_lm")


def test_damaged_or_missing_weights_raise_an_error(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", shards=True)
    parts = sorted(directory.glob("model-*.safetensors"))
    content = parts[0].read_bytes()
    parts[0].write_bytes(content[:100])
    with pytest.raises(BadInput, match="is damaged or not a safetensors file"):
        plans_of(directory, "causal_lm")
    parts[0].unlink()
    with pytest.raises(BadInput, match=f"names {parts[0].name}, and there is no such file"):
        plans_of(directory, "causal_lm")
    for damaged in ("[]", "[" * 100_000):
        (directory / "model.safetensors.index.json").write_text(damaged)
        with pytest.raises(BadInput, match=r"index\.json is damaged"):
            plans_of(directory, "causal_lm")
    (directory / "model.safetensors.index.json").unlink()
    with pytest.raises(BadInput, match="tiny has no weights"):
        plans_of(directory, "causal_lm")
    with pytest.raises(BadInput, match="FunASR has no layout for tiny, a language model"):
        plans_of(directory, "causal_lm", "funasr")


def test_pytorch_bin_weights_are_converted(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", "qwen2", tie_word_embeddings=False)
    tensors = network_of(directory).state_dict()
    (directory / "model.safetensors").unlink()
    torch.save(tensors, directory / "pytorch_model.bin")
    (read,) = converted_file(directory, "causal_lm", "f32", tmp_path / "it.gguf")
    assert isinstance(read, Read)
    assert_holds(read, flat(tensors, llama_names(3)))


@pytest.mark.parametrize("tied", [True, False])
def test_names_of_embedding_models_and_old_tables_of_positions_are_followed(tied: bool, tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny", "qwen3", tie_word_embeddings=tied)
    tensors = dict(network_of(directory).state_dict())
    stored = {name.removeprefix("model."): value for name, value in tensors.items() if not (tied and "lm_head" in name)}
    stored["layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    (directory / "model.safetensors").unlink()
    torch.save(stored, directory / "pytorch_model.bin")
    (read,) = converted_file(directory, "causal_lm", "f32", tmp_path / "it.gguf")
    if tied:
        tensors.pop("lm_head.weight")
    assert isinstance(read, Read)
    assert_holds(read, flat(tensors, llama_names(3)))


def test_different_pre_tokenizer_adds_a_note(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "tiny")
    assert plans_of(directory, "causal_lm")[0].notes == []
    change_json(directory / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    text = (directory / "tokenizer.json").read_text()
    (directory / "tokenizer.json").write_text(text.replace(r"\\p{N}|", r"\\p{N}{1,3}|"))
    (plan,) = plans_of(directory, "causal_lm")
    assert len(plan.notes) == 1 and "splits text differently from Qwen2's" in plan.notes[0]
