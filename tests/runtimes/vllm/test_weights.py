"""Checks of a language model's weight files before an engine loads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.tiny_language import put_tokenizer, random_network
from workbench.core.errors import BadInput
from workbench.runtimes.vllm.weights import check_weights

Tensors = dict[str, torch.Tensor]


@pytest.fixture(params=["qwen3", "qwen2", "llama"])
def directory(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "tiny"
    random_network(request.param).save_pretrained(path)
    put_tokenizer(path)
    return path


def rewrite(directory: Path, change: Callable[[Tensors], Any]) -> None:
    path = directory / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_complete_weights_are_accepted(directory: Path) -> None:
    check_weights(directory)
    rewrite(directory, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}))
    check_weights(directory)  # older files have this tensor


def test_sharded_weights_are_accepted_and_a_missing_shard_is_refused(tmp_path: Path) -> None:
    network = random_network("qwen3")
    network.save_pretrained(tmp_path / "m", max_shard_size="20kB")
    assert len(list((tmp_path / "m").glob("model-*.safetensors"))) > 1
    check_weights(tmp_path / "m")
    next((tmp_path / "m").glob("model-00001*")).unlink()
    with pytest.raises(BadInput, match=r"m lacks tensor model\.embed_tokens\.weight"):
        check_weights(tmp_path / "m")


def test_output_weights_may_be_missing_only_when_tied(tmp_path: Path) -> None:
    for tied in (True, False):
        path = tmp_path / str(tied)
        random_network("qwen3", tie_word_embeddings=tied).save_pretrained(path)
        rewrite(path, lambda tensors: tensors.pop("lm_head.weight", None))
        if tied:
            check_weights(path)
        else:
            with pytest.raises(BadInput, match=r"False lacks tensor lm_head\.weight"):
                check_weights(path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_weights_of_a_tied_model_equal_its_embeddings(dtype: torch.dtype, tmp_path: Path) -> None:
    random_network("qwen3", tie_word_embeddings=True).to(dtype).save_pretrained(tmp_path / "m", max_shard_size="20kB")
    [path] = (path for path in (tmp_path / "m").glob("model-*") if "model.embed_tokens.weight" in load_file(path))
    output = load_file(path)["model.embed_tokens.weight"].clone()
    save_file({"lm_head.weight": output}, tmp_path / "m" / "model-99999-of-99999.safetensors")
    check_weights(tmp_path / "m")
    output[-1, -1] += 1
    save_file({"lm_head.weight": output}, tmp_path / "m" / "model-99999-of-99999.safetensors")
    with pytest.raises(BadInput, match=r"lm_head\.weight and model\.embed_tokens\.weight of m differ, .* vLLM takes"):
        check_weights(tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), r"tiny lacks tensor model\.layers\.1\.mlp\.up_proj"),
        (lambda t: t.update({"mystery": torch.ones(1)}), "tiny has tensor mystery, which its network does not have"),
        (
            lambda t: t.update({"model.norm.weight": torch.ones(31)}),
            r"model\.norm\.weight has shape \(31,\); its config\.json calls for \(32,\)",
        ),
    ],
)
def test_missing_extra_or_misshapen_tensor_is_refused_by_name(
    directory: Path, change: Callable[[Tensors], Any], sentence: str
) -> None:
    rewrite(directory, change)
    with pytest.raises(BadInput, match=sentence):
        check_weights(directory)


def test_a_truncated_file_is_named(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInput, match=r"tiny/model\.safetensors \(\d+ bytes\) is truncated, damaged"):
        check_weights(directory)
