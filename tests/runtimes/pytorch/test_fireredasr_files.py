"""The files of a FireRedASR-LLM checkpoint on PyTorch: LoRA, full weights, either file, and damaged files."""

from __future__ import annotations

import hashlib
import pickle
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.support.tiny_checkpoints import noise
from tests.support.tiny_fireredasr import (
    ARGUMENTS,
    ENCODER_ARGUMENTS,
    HIDDEN,
    LAYERS,
    hearing_tensors,
    lora_tensors,
    statistics,
    tiny_fireredasr,
    write_language,
    write_package,
    write_statistics,
)
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.speech_llm.fireredasr import CMVN, ENCODER_WEIGHTS, LANGUAGE_DIRECTORY, WEIGHTS
from workbench.pipelines.recognition.speech_language import SpeechLanguagePipeline
from workbench.runtimes.pytorch.checkpoints.fireredasr_package import read_package
from workbench.runtimes.pytorch.fireredasr import open_session
from workbench.runtimes.pytorch.language_models.language import LanguageModel


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_fireredasr(tmp_path_factory.mktemp("tiny") / "firered")


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint for tests that change it; its language model is a link."""
    directory = tmp_path / "firered"
    directory.mkdir()
    for name in (WEIGHTS, ENCODER_WEIGHTS, CMVN):
        (directory / name).write_bytes((checkpoint / name).read_bytes())
    (directory / LANGUAGE_DIRECTORY).symlink_to(checkpoint / LANGUAGE_DIRECTORY)
    return directory


def tokens_of(directory: Path, **settings: Any) -> tuple[int, ...]:
    return open_session(directory, "tiny", Settings(**settings)).transcribe(noise(4)).tokens


def network_of(directory: Path) -> Any:
    recogniser = open_session(directory, "tiny", Settings()).recogniser
    assert isinstance(recogniser, SpeechLanguagePipeline)
    assert isinstance(recogniser.language, LanguageModel)
    return recogniser.language.network


def refusal(directory: Path) -> str:
    with pytest.raises(BadInput) as caught:
        open_session(directory, "tiny", Settings())
    text = str(caught.value)
    assert "\n" not in text and 20 < len(text) < 500 and "Traceback" not in text
    return text


def test_lora_changes_the_weights_and_not_the_file_they_are_from(checkpoint: Path) -> None:
    file = checkpoint / LANGUAGE_DIRECTORY / "model.safetensors"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    base, pairs = load_file(file), lora_tensors()
    parameters = dict(network_of(checkpoint).named_parameters())
    for layer in range(3):
        for name in LAYERS:
            plain = f"model.layers.{layer}.{name}"
            a, b = (pairs[f"llm.base_model.model.{plain}.lora_{half}.default.weight"] for half in "AB")
            torch.testing.assert_close(parameters[f"{plain}.weight"].detach(), base[f"{plain}.weight"] + 16 / 4 * b @ a)
    torch.testing.assert_close(parameters["model.embed_tokens.weight"].detach(), base["model.embed_tokens.weight"])
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest


def test_lora_alpha_and_rank_are_read_from_the_checkpoint_arguments(copy: Path) -> None:
    plain = network_of(copy).model.layers[0].mlp.up_proj.weight
    rewrite(copy, arguments={"lora_alpha": 4, "lora_r": 4})
    scaled = network_of(copy).model.layers[0].mlp.up_proj.weight
    base = load_file(copy / LANGUAGE_DIRECTORY / "model.safetensors")["model.layers.0.mlp.up_proj.weight"]
    torch.testing.assert_close(4 * (scaled - base), plain - base, rtol=1e-3, atol=1e-5)


def rewrite(
    directory: Path,
    tensors: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
    arguments: dict[str, Any] | None = None,
) -> None:
    """Write `model.pth.tar` again, with changed tensors and arguments."""
    all_tensors = {**hearing_tensors(), **lora_tensors()}
    write_package(directory / WEIGHTS, {**ARGUMENTS, **(arguments or {})}, tensors(all_tensors))


def full_weights(directory: Path, prefix: str, base_layer: str) -> dict[str, Tensor]:
    """All weights of the language model, as in a checkpoint saved without LoRA or with unmerged LoRA."""
    base = load_file(directory / LANGUAGE_DIRECTORY / "model.safetensors")
    replaced = {f"{name}.weight" for name in LAYERS}
    return {
        prefix + (name.replace(".weight", base_layer) if name.split(".", 3)[-1] in replaced else name): value
        for name, value in base.items()
    }


@pytest.mark.parametrize(
    ("prefix", "base_layer"),
    [("llm.", ".weight"), ("llm.base_model.model.", ".base_layer.weight")],
    ids=["use_lora=0", "unmerged"],
)
def test_full_weights_in_the_checkpoint_need_none_in_the_directory(
    copy: Path, tmp_path: Path, prefix: str, base_layer: str
) -> None:
    expected = tokens_of(copy)
    weights = full_weights(copy, prefix, base_layer)
    rewrite(copy, lambda tensors: {**tensors, **weights})
    (copy / LANGUAGE_DIRECTORY).unlink()
    (write_language(copy / LANGUAGE_DIRECTORY, seed=9) / "model.safetensors").unlink()
    assert tokens_of(copy) == expected


def test_full_weight_in_the_checkpoint_replaces_the_base_weight(copy: Path) -> None:
    replacement = torch.full((HIDDEN,), 0.5)
    rewrite(copy, lambda tensors: {**tensors, "llm.base_model.model.model.norm.weight": replacement})
    assert torch.equal(network_of(copy).model.norm.weight, replacement)


def test_sharded_base_weights_give_the_same_tokens(copy: Path) -> None:
    expected = tokens_of(copy)
    from tests.support.tiny_language import random_network

    network = random_network("qwen2", 1)
    (copy / LANGUAGE_DIRECTORY).unlink()
    language = write_language(copy / LANGUAGE_DIRECTORY)
    network.load_state_dict(load_file(language / "model.safetensors"))
    (language / "model.safetensors").unlink()
    network.save_pretrained(language, max_shard_size="40KB")
    assert len(list(language.glob("*.safetensors"))) > 2
    assert tokens_of(copy) == expected


@pytest.mark.parametrize("complete", [False, True], ids=["encoder", "whole recogniser"])
def test_encoder_is_read_from_either_file_and_the_model_file_takes_precedence(copy: Path, complete: bool) -> None:
    expected = tokens_of(copy)
    encoder = {name: value for name, value in hearing_tensors().items() if name.startswith("encoder.")}
    changed = {name: value + 1 for name, value in encoder.items()} | {"decoder.tgt_word_emb.weight": torch.zeros(2, 2)}
    if complete:
        write_package(copy / ENCODER_WEIGHTS, ENCODER_ARGUMENTS, changed)
    else:
        write_package(copy / ENCODER_WEIGHTS, ENCODER_ARGUMENTS, encoder)
        rewrite(copy, lambda tensors: {name: value for name, value in tensors.items() if name not in encoder})
    assert tokens_of(copy) == expected


def test_legacy_torch_file_format_is_read(copy: Path) -> None:
    expected = tokens_of(copy)
    package = {"args": Namespace(**ARGUMENTS), "model_state_dict": {**hearing_tensors(), **lora_tensors()}}
    torch.save(package, copy / WEIGHTS, _use_new_zipfile_serialization=False)
    assert tokens_of(copy) == expected


def without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def put(name: str, value: Tensor) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {**tensors, name: value}


FIRST, LAST = "encoder_projector.linear1.weight", "encoder_projector.linear2.weight"


A = "llm.base_model.model.model.layers.0.mlp.up_proj.lora_A.default.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(FIRST, torch.zeros(HIDDEN, 48)), "the adapter takes 48 values and 2 stacked encoder frames of 16 give 32"),
        (
            put(LAST, torch.zeros(64, 64)),
            "the adapter gives embeddings 64 wide and the language model in Qwen2-7B-Instruct is 32 wide",
        ),
        (put(A, torch.zeros(4, 48)), "LoRA weights for another base: llm.base_model.model.model.layers.0.mlp.up_proj"),
        (put(A, torch.zeros(4, 48)), "has shape (4, 48); the language model in Qwen2-7B-Instruct calls for (4, 32)"),
        (
            put(A.replace("layers.0", "layers.27"), torch.zeros(4, 32)),
            "has lora_A of model.layers.27.mlp.up_proj and not its lora_B",
        ),
        (without("encoder.layer_stack.1.ffn1.net.1.weight"), "lacks tensor encoder.layer_stack.1.ffn1.net.1.weight"),
        (without("encoder_projector.linear1.bias"), "which the section args of asr_encoder.pth.tar calls for"),
        (without(LAST), "lacks tensor encoder_projector.linear2.weight"),
        (put("encoder.layer_stack.2.layer_norm.bias", torch.zeros(16)), "has tensor encoder.layer_stack.2.layer_norm"),
        (put("optimizer", torch.zeros(1)), "has tensor optimizer"),
        (put("encoder.layer_stack.0.layer_norm.bias", torch.zeros(17)), "has shape (17,)"),
        (put("encoder.layer_stack.0.layer_norm.bias", torch.full((16,), torch.nan)), "values that are not finite"),
        (put("llm.model.other.weight", torch.zeros(3)), "llm.model.other.weight has shape (3,)"),
        (put("llm.model.norm.weight", torch.zeros(3)), "weights for another base: llm.model.norm.weight"),
    ],
)
def test_missing_or_misshapen_tensors_raise_an_error_with_the_file_name(copy: Path, change: Any, words: str) -> None:
    rewrite(copy, change)
    assert words in refusal(copy)
    assert f"firered/{WEIGHTS}" in refusal(copy)


def test_language_model_of_another_width_is_refused(copy: Path) -> None:
    (copy / LANGUAGE_DIRECTORY).unlink()
    write_language(copy / LANGUAGE_DIRECTORY, hidden_size=64)
    assert "the adapter gives embeddings 32 wide and the language model in Qwen2-7B-Instruct is 64 wide" in refusal(
        copy
    )


def test_lora_for_language_model_layers_of_another_size_is_refused(copy: Path) -> None:
    (copy / LANGUAGE_DIRECTORY).unlink()
    write_language(copy / LANGUAGE_DIRECTORY, intermediate_size=96)
    assert "LoRA weights for another base" in refusal(copy)
    assert "calls for (96, 4)" in refusal(copy)


def test_language_directory_without_weights_is_refused(copy: Path) -> None:
    (copy / LANGUAGE_DIRECTORY).unlink()
    (write_language(copy / LANGUAGE_DIRECTORY) / "model.safetensors").unlink()
    assert "language model directory Qwen2-7B-Instruct has no weights" in refusal(copy)


def test_missing_language_directory_raises_an_error_with_the_link_command(copy: Path) -> None:
    (copy / LANGUAGE_DIRECTORY).unlink()
    assert "no directory Qwen2-7B-Instruct in it or beside it; link one with: ln -s" in refusal(copy)


def test_unknown_tensor_in_the_encoder_file_is_refused(copy: Path) -> None:
    write_package(copy / ENCODER_WEIGHTS, ENCODER_ARGUMENTS, {"vocoder.weight": torch.zeros(1)})
    assert f"{ENCODER_WEIGHTS} has tensor vocoder.weight" in refusal(copy)


def test_damaged_or_misshapen_cmvn_statistics_are_refused(copy: Path) -> None:
    (copy / CMVN).write_bytes((copy / CMVN).read_bytes()[:-8])
    assert "cmvn.ark states a Kaldi matrix of 2 rows and 81 columns and holds 1288 bytes" in refusal(copy)
    write_statistics(copy / CMVN, statistics(40))
    assert "the CMVN has 40 values" in refusal(copy)


class Code:
    """A pickle that would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('code of a checkpoint ran')",))


@pytest.mark.parametrize("name", [WEIGHTS, ENCODER_WEIGHTS])
@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: path.write_bytes(b""), "(0 bytes) is truncated, damaged or not a torch file"),
        (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "not a torch file"),
        (lambda path: path.write_bytes(b"not a file of torch" * 99), "not a torch file"),
        (
            lambda path: path.write_bytes(pickle.dumps({"args": Code()}, protocol=2)),
            "objects other than tensors and plain arguments",
        ),
        (lambda path: torch.save({"args": Code()}, path), "objects other than tensors and plain arguments"),
        (lambda path: torch.save({"args": Namespace(d_model=Code())}, path), "objects other than tensors"),
        (lambda path: torch.save({"args": Namespace(path=Path("x"))}, path), "objects other than tensors"),
        (lambda path: torch.save({"model_state_dict": {}}, path), "holds no args"),
        (lambda path: torch.save([1, 2], path), "holds no args"),
        (lambda path: torch.save(torch.zeros(3), path), "holds no args"),
        (lambda path: torch.save({"args": 7}, path), "is a int; expected an argparse.Namespace"),
        (lambda path: torch.save({"args": {}, "model_state_dict": [1]}, path), "is a list; expected tensors by name"),
        (lambda path: torch.save({"args": {}, "model_state_dict": {"a": 1}}, path), "holds a int under 'a'"),
    ],
)
def test_damaged_or_hostile_packages_raise_an_error_with_the_file_name(
    copy: Path, name: str, write: Callable[[Path], Any], words: str
) -> None:
    write(copy / name)
    text = refusal(copy)
    assert words in text and f"firered/{name}" in text


def test_package_arguments_as_a_dict_and_module_prefixes_are_read(tmp_path: Path) -> None:
    torch.save({"args": {"d_model": 4}, "model_state_dict": {"module.a": torch.ones(1)}}, tmp_path / "x.pth.tar")
    package = read_package(tmp_path / "x.pth.tar")
    assert package.arguments == {"d_model": 4} and set(package.tensors) == {"a"}
