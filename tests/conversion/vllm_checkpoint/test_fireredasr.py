"""FireRedASR-LLM as a directory for vLLM: all tensors are present, LoRA is merged, and it is read back unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.tiny_fireredasr import (
    ARGUMENTS,
    LAYERS,
    RANK,
    lora_tensors,
    tiny_fireredasr,
    write_language,
    write_package,
)
from tests.support.tiny_language import SHAPE, change_json
from workbench.audio.cmvn import read_cmvn_ark
from workbench.conversion.vllm_checkpoint import directory as directories
from workbench.conversion.vllm_checkpoint import tensors as writing
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of
from workbench.conversion.vllm_checkpoint.directory import write_directory
from workbench.families.language.directory import AUDIO, VLLM_FORMAT, VLLM_SECTION, LanguageTokenizer
from workbench.families.speech_llm.fireredasr import (
    CMVN,
    ENCODER_WEIGHTS,
    LANGUAGE_DIRECTORY,
    PROMPT,
    SPEECH,
    WEIGHTS,
    prompt_ids,
    read_vllm_fireredasr,
)
from workbench.families.speech_llm.fireredasr_chat import chat_template
from workbench.registry.sources import assets
from workbench.runtimes.pytorch.checkpoints.fireredasr_package import read_package
from workbench.runtimes.pytorch.fireredasr import open_fireredasr_language, read_checkpoint

WRAPPED = "llm.base_model.model."
Tensors = dict[str, Tensor]


def vllm_directory(checkpoint: Path, out: Path) -> Path:
    """Writes a checkpoint's directory for vLLM; returns it."""
    write_directory(plan_of(checkpoint, "fireredasr"), out)
    return out


def tensors_of(directory: Path) -> Tensors:
    tensors: Tensors = {}
    for file in sorted(directory.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def change_weights(directory: Path, change: Callable[[Tensors], Mapping[str, Tensor]], name: str = WEIGHTS) -> None:
    """Rewrites a checkpoint's file with changed tensors."""
    arguments = dict(read_package(directory / name).arguments)
    write_package(directory / name, arguments, dict(change(stored_in(directory, name))))


def stored_in(directory: Path, name: str = WEIGHTS) -> Tensors:
    """Returns the tensors of a checkpoint's file, in memory, so that the file can be rewritten."""
    return {each: value.clone() for each, value in read_package(directory / name).tensors.items()}


def base_of(directory: Path) -> Tensors:
    """Returns the weights of the language model's directory, in memory."""
    weights = directory / LANGUAGE_DIRECTORY / "model.safetensors"
    return {name: value.clone() for name, value in load_file(weights).items()}


def expected_tensors(checkpoint: Path) -> Tensors:
    """Returns the tensors that the PyTorch runtime computes with, in float32, by the directory's names."""
    read = read_checkpoint(checkpoint)
    half = open_fireredasr_language(read, torch.device("cpu"), "float32")
    return {**read.audio, **{f"llm.{name}": value for name, value in half.network.state_dict().items()}}


def assert_same(tensors: Tensors, expected: Tensors) -> None:
    assert set(tensors) == set(expected)
    for name, value in expected.items():
        assert torch.equal(tensors[name].float(), value.float()), name


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_fireredasr(tmp_path_factory.mktemp("tiny") / "firered", lora_alpha=8, length_rule="head")


@pytest.fixture(scope="module")
def converted(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vllm_directory(checkpoint, tmp_path_factory.mktemp("served") / "firered")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A copy of the checkpoint that the test may change."""
    return tiny_fireredasr(tmp_path / "firered")


# Tensors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "demo"])
def test_vllm_tensors_equal_those_of_the_pytorch_runtime(name: str, checkpoint: Path, tmp_path: Path) -> None:
    directory = checkpoint if name == "tiny" else assets() / "demo-fireredasr"
    assert_same(tensors_of(vllm_directory(directory, tmp_path / "out")), expected_tensors(directory))


def test_lora_is_merged_in_float32_according_to_its_definition(checkpoint: Path, converted: Path) -> None:
    tensors = tensors_of(converted)
    base = base_of(checkpoint)
    pairs = lora_tensors()
    changed = {f"model.layers.{layer}.{name}" for layer in range(SHAPE["num_hidden_layers"]) for name in LAYERS}
    for module in changed:
        a, b = (pairs[f"{WRAPPED}{module}.lora_{half}.default.weight"].double().numpy() for half in "AB")
        weight = base[f"{module}.weight"].double().numpy()
        slow = np.array(
            [
                [weight[o, i] + 8 / RANK * sum(b[o, r] * a[r, i] for r in range(RANK)) for i in range(weight.shape[1])]
                for o in range(weight.shape[0])
            ]
        )
        merged = tensors[f"llm.{module}.weight"]
        assert merged.dtype == torch.float32
        np.testing.assert_allclose(merged.numpy(), slow, rtol=0, atol=2e-6, err_msg=module)
        assert np.abs(slow - weight).max() > 0.1, "the change is one that can be seen"
    for name, value in base.items():
        if name.removesuffix(".weight") not in changed:
            assert torch.equal(tensors[f"llm.{name}"], value), name


@pytest.mark.parametrize("rows", [1, 7])
def test_weights_written_in_chunks_and_shards_are_equal(
    rows: int, checkpoint: Path, converted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CHUNK_VALUES", rows * SHAPE["hidden_size"])
    monkeypatch.setattr(directories, "SHARD_BYTES", 40_000)
    out = vllm_directory(checkpoint, tmp_path / "out")
    assert len(list(out.glob("model-*.safetensors"))) > 2 and not (out / "model.safetensors").exists()
    expected, pieces = tensors_of(converted), tensors_of(out)
    assert set(pieces) == set(expected)
    for name, value in expected.items():  # sums in chunks may round otherwise
        torch.testing.assert_close(pieces[name], value, rtol=0, atol=1e-6)
    assert set(json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]) == set(expected)


def test_tensors_without_lora_keep_their_dtype(own: Path, tmp_path: Path) -> None:
    weights = own / LANGUAGE_DIRECTORY / "model.safetensors"
    save_file({name: value.bfloat16() for name, value in base_of(own).items()}, weights, {"format": "pt"})
    half = {name: value.half() for name, value in stored_in(own).items() if "encoder" in name}
    change_weights(own, lambda tensors: {**tensors, **half})
    written = tensors_of(vllm_directory(own, tmp_path / "out"))
    assert written["llm.model.embed_tokens.weight"].dtype == torch.bfloat16
    assert written["llm.model.layers.0.self_attn.q_proj.bias"].dtype == torch.bfloat16
    assert written["llm.model.layers.0.self_attn.q_proj.weight"].dtype == torch.float32
    assert written["encoder_projector.linear1.weight"].dtype == torch.float16
    assert_same(written, expected_tensors(own))


def test_encoder_weights_are_read_from_the_separate_encoder_file(own: Path, tmp_path: Path) -> None:
    moved = {name: value for name, value in stored_in(own).items() if name.startswith("encoder.")}
    change_weights(own, lambda tensors: {name: value for name, value in tensors.items() if name not in moved})
    change_weights(own, lambda _: {**moved, "decoder.tgt_word_emb.weight": torch.zeros(3, 3)}, ENCODER_WEIGHTS)
    assert_same(tensors_of(vllm_directory(own, tmp_path / "out")), expected_tensors(own))


# Language halves of other forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lora", [False, True])
def test_complete_language_weights_need_no_base_model(lora: bool, own: Path, tmp_path: Path) -> None:
    weights = own / LANGUAGE_DIRECTORY / "model.safetensors"
    base = base_of(own)
    expected = {name: value.clone() for name, value in expected_tensors(own).items()}
    if lora:  # as peft saves a wrapped model before its halves are added up
        modules = {name.split(".lora_")[0].removeprefix(WRAPPED) for name in lora_tensors()}
        stored = {
            f"{WRAPPED}{name.replace('.weight', '.base_layer.weight') if name[:-7] in modules else name}": value
            for name, value in base.items()
        }
        change_weights(own, lambda tensors: {**tensors, **stored})
    else:
        stored = {name: value for name, value in expected.items() if name.startswith("llm.")}
        change_weights(own, lambda tensors: {**{n: v for n, v in tensors.items() if n[:4] != "llm."}, **stored})
    weights.unlink()
    assert_same(tensors_of(vllm_directory(own, tmp_path / "out")), expected)


@pytest.mark.parametrize("output", ["same", "other"])
@pytest.mark.parametrize("complete", [False, True])
def test_output_matrix_is_omitted_only_if_equal_to_the_embeddings(
    output: str, complete: bool, own: Path, tmp_path: Path
) -> None:
    """An output matrix that is the embeddings again is left out; another changes the configuration."""
    language = own / LANGUAGE_DIRECTORY
    base = base_of(own)
    base["lm_head.weight"] = base["model.embed_tokens.weight"].clone() + (output == "other")
    if complete:
        change_weights(own, lambda tensors: {**tensors, **{f"llm.{name}": value for name, value in base.items()}})
    else:
        save_file(base, language / "model.safetensors", {"format": "pt"})
    change_json(language / "config.json", tie_word_embeddings=True)
    out = vllm_directory(own, tmp_path / "out")
    written = tensors_of(out)
    assert ("llm.lm_head.weight" in written) == (output == "other")
    assert json.loads((out / "config.json").read_text())["tie_word_embeddings"] == (output == "same")
    if output == "other":
        assert torch.equal(written["llm.lm_head.weight"], base["lm_head.weight"])


def test_sharded_pytorch_bin_language_model_is_converted(own: Path, tmp_path: Path) -> None:
    expected = {name: value.clone() for name, value in expected_tensors(own).items()}
    language = own / LANGUAGE_DIRECTORY
    base = base_of(own)
    (language / "model.safetensors").unlink()
    names = list(base)
    parts = {"pytorch_model-1.bin": names[::2], "pytorch_model-2.bin": names[1::2]}
    for file, part in parts.items():
        torch.save({name: base[name] for name in part}, language / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (language / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert_same(tensors_of(vllm_directory(own, tmp_path / "out")), expected)


# What else is in it -----------------------------------------------------------------------------------------------


def test_vllm_directory_reads_back_as_the_checkpoint_without_lora(checkpoint: Path, converted: Path) -> None:
    before, after = read_checkpoint(checkpoint).model, read_vllm_fireredasr(converted)
    assert (after.encoder, after.frontend, after.downsample_rate) == (before.encoder, before.frontend, 2)
    assert after.length_rule == before.length_rule == "head"
    assert after.lora_rank is None
    assert after.language.directory == after.directory == converted
    assert (after.language.hidden_size, after.language.stop_ids) == (
        before.language.hidden_size,
        before.language.stop_ids,
    )
    assert (after.stop_id, after.pad_id) == (before.stop_id, before.pad_id)
    assert after.cmvn_file.read_bytes() == before.cmvn_file.read_bytes()


def test_audio_placeholder_is_the_first_free_token_id(checkpoint: Path, converted: Path) -> None:
    before, after = read_checkpoint(checkpoint).model, read_vllm_fireredasr(converted)
    bare = LanguageTokenizer.read(checkpoint / LANGUAGE_DIRECTORY)
    assert after.speech == AUDIO and after.speech_id == len(bare) == before.speech_id
    assert prompt_ids(after).tolist() == prompt_ids(before).tolist()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(converted), local_files_only=True)
    assert tokenizer(PROMPT.replace(SPEECH, AUDIO))["input_ids"] == prompt_ids(before).tolist()
    assert tokenizer.decode(prompt_ids(after), skip_special_tokens=True).find(AUDIO) == -1


def test_placeholder_takes_the_last_row_of_an_embedding_table_without_spare_rows(own: Path, tmp_path: Path) -> None:
    tokens = len(LanguageTokenizer.read(own / LANGUAGE_DIRECTORY)) + 1
    write_language(own / LANGUAGE_DIRECTORY, vocab_size=tokens)
    after = read_vllm_fireredasr(vllm_directory(own, tmp_path / "out"))
    assert after.speech_id == tokens - 1 and after.language.vocabulary == tokens


def test_configuration_extends_the_language_model_configuration_with_speech_entries(
    checkpoint: Path, converted: Path
) -> None:
    before = json.loads((checkpoint / LANGUAGE_DIRECTORY / "config.json").read_text())
    after = json.loads((converted / "config.json").read_text())
    assert {name: after[name] for name in before if name != "architectures"} == {
        name: value for name, value in before.items() if name != "architectures"
    }
    assert after["architectures"] == ["SpeechWorkbenchFireRedASR"]
    assert after["audio_encoder_conf"] == {
        "idim": 80,
        "n_layers_enc": 2,
        "n_head": 2,
        "d_model": 16,
        "kernel_size": 5,
        "pe_maxlen": 5000,
    }
    assert after["encoder_downsample_rate"] == 2
    section = after[VLLM_SECTION]
    assert (section["format"], section["family"]) == (VLLM_FORMAT, "fireredasr")
    assert section["arguments"]["length_rule"] == "head" and section["arguments"]["use_lora"] == 0
    assert "lora_alpha" not in section["arguments"] and "lora_r" not in section["arguments"]
    assert ARGUMENTS["llm_dir"] not in json.dumps(after), "no path of another machine"
    assert section["encoder_arguments"]["residual_dropout"] == 0.1


def test_preprocessor_configuration_contains_the_cmvn_of_the_checkpoint(converted: Path) -> None:
    content = json.loads((converted / "preprocessor_config.json").read_text())
    cmvn = read_cmvn_ark(converted / CMVN)
    features = np.random.default_rng(1).uniform(5, 15, (9, 80)).astype(np.float32)
    normalised = (features - np.array(content["means"])) * np.array(content["inverse_std_variences"])
    np.testing.assert_allclose(normalised, (features + cmvn.shift) * cmvn.scale, rtol=0, atol=1e-6)
    assert content["processor_class"] == "FireRedASR2Processor"
    assert (content["hop_length"], content["max_length"], content["chunk_length"]) == (160, 3000, 30)


def test_tokenizer_has_the_chat_template_of_the_family(checkpoint: Path, converted: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(converted), local_files_only=True)
    assert tokenizer.chat_template == chat_template(read_checkpoint(checkpoint).model)


def test_language_model_outside_the_checkpoint_is_listed_as_a_source(own: Path, tmp_path: Path) -> None:
    (own / LANGUAGE_DIRECTORY).rename(tmp_path / LANGUAGE_DIRECTORY)
    assert list(plan_of(own, "fireredasr").sources) == [(tmp_path / LANGUAGE_DIRECTORY).resolve()]
