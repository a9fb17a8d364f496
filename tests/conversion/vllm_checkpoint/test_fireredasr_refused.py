"""Checkpoints of FireRedASR-LLM that are not converted for vLLM, each with the sentence that says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.conversion.vllm_checkpoint.test_fireredasr import WRAPPED, Tensors, base_of, change_weights, vllm_directory
from tests.support.tiny_fireredasr import (
    RANK,
    lora_tensors,
    tiny_fireredasr,
)
from workbench.core.errors import BadInput
from workbench.families.speech_llm.fireredasr import (
    LANGUAGE_DIRECTORY,
    WEIGHTS,
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A checkpoint that the test may change."""
    return tiny_fireredasr(tmp_path / "firered")


def refusal(directory: Path, out: Path) -> str:
    with pytest.raises(BadInput) as caught:
        vllm_directory(directory, out)
    text = str(caught.value)
    assert "\n" not in text and 20 < len(text) < 500
    assert not out.exists() and not list(out.parent.glob(f".{out.name}*"))
    return text


UP = "model.layers.0.mlp.up_proj"


def put(name: str, value: Tensor) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: value}


def without(name: str) -> Callable[[Tensors], Tensors]:
    def change(tensors: Tensors) -> Tensors:
        del tensors[name]
        return tensors

    return change


def with_nan(name: str) -> Callable[[Tensors], Tensors]:
    def change(tensors: Tensors) -> Tensors:
        tensors[name].view(-1)[-1] = float("nan")
        return tensors

    return change


@pytest.mark.parametrize(
    "change, message",
    [
        (
            without("encoder.layer_stack.1.mhsa.w_qs.weight"),
            r"lacks tensor encoder\.layer_stack\.1\.mhsa\.w_qs\.weight",
        ),
        (put("encoder.layer_stack.2.layer_norm.bias", torch.zeros(16)), r"has tensor encoder\.layer_stack\.2"),
        (put("encoder.layer_stack.0.layer_norm.bias", torch.zeros(15)), r"layer_norm\.bias has shape \(15,\).*\(16,\)"),
        (put("encoder_projector.linear1.weight", torch.zeros(32, 48)), r"the adapter takes 48 values"),
        (put("encoder_projector.linear1.bias", torch.zeros(32, dtype=torch.long)), r"linear1\.bias holds torch\.int64"),
        (with_nan("encoder_projector.linear2.weight"), r"linear2\.weight holds values that are not finite"),
        (with_nan("encoder.input_preprocessor.conv.0.weight"), r"conv\.0\.weight holds values that are not finite"),
        (with_nan(f"{WRAPPED}{UP}.lora_A.default.weight"), r"up_proj\.lora_A holds values that are not finite"),
        (
            without(f"{WRAPPED}{UP}.lora_A.default.weight"),
            r"has lora_B of model\.layers\.0\.mlp\.up_proj and not its lora_A",
        ),
        (put(f"{WRAPPED}{UP}.lora_B.default.weight", torch.zeros(3, RANK)), r"LoRA weights for another base.*\(3, 4\)"),
        (
            lambda tensors: {**tensors, **{n.replace("layers.0", "layers.3"): v for n, v in lora_tensors().items()}},
            r"LoRA weights for another base.*a layer that the language model in Qwen2-7B-Instruct does not have",
        ),
        (put("llm.model.norm.weight", torch.zeros(31)), r"weights for another base: llm\.model\.norm\.weight"),
        (put(f"llm.{UP}.magnitude.lora_magnitude_vector", torch.zeros(3)), r"of a kind of change .* not supported"),
    ],
)
def test_bad_checkpoint_raises_an_error_with_the_file_name(
    change: Callable[[Tensors], Tensors], message: str, own: Path, tmp_path: Path
) -> None:
    change_weights(own, change)
    text = refusal(own, tmp_path / "out")
    assert re.search(message, text)
    assert f"firered/{WEIGHTS}" in text


@pytest.mark.parametrize(
    "change, message",
    [
        (without("model.norm.weight"), "lacks tensor model.norm.weight"),
        (put("model.strange.weight", torch.zeros(3)), "has tensor model.strange.weight"),
        (put("model.norm.weight", torch.zeros(7)), "model.norm.weight has shape (7,)"),
        (with_nan("model.norm.weight"), "llm.model.norm.weight holds values that are not finite"),
        (with_nan(f"{UP}.weight"), f"llm.{UP}.weight holds values that are not finite"),
    ],
)
def test_bad_language_model_raises_an_error_with_its_directory(
    change: Callable[[Tensors], Tensors], message: str, own: Path, tmp_path: Path
) -> None:
    weights = own / LANGUAGE_DIRECTORY / "model.safetensors"
    save_file(change(base_of(own)), weights, {"format": "pt"})
    text = refusal(own, tmp_path / "out")
    assert message in text and LANGUAGE_DIRECTORY in text


def test_language_model_without_weights_raises_an_error(own: Path, tmp_path: Path) -> None:
    (own / LANGUAGE_DIRECTORY / "model.safetensors").unlink()
    assert "language model directory Qwen2-7B-Instruct has no weights" in refusal(own, tmp_path / "out")
