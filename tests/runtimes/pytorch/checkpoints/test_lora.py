"""LoRA weights: parsing of peft tensor names, merging into base weights, and refusal of other base models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from workbench.core.errors import BadInput
from workbench.runtimes.pytorch.checkpoints.lora import LanguageTensors, merge_pairs, replace_weights, sort_tensors

FILE, BASE = "x/model.pth.tar", "the language model in Qwen2"
LAYER = "model.layers.0.mlp.up_proj"
PEFT_NAME = f"base_model.model.{LAYER}"


class Block(nn.Module):
    """A linear layer with a name as in a real model."""

    def __init__(self, inputs: int = 3, outputs: int = 5) -> None:
        super().__init__()
        mlp = nn.ModuleDict({"up_proj": nn.Linear(inputs, outputs, bias=False)})
        self.model = nn.ModuleDict({"layers": nn.ModuleList([nn.ModuleDict({"mlp": mlp})]), "norm": nn.LayerNorm(3)})

    @property
    def weight(self) -> Tensor:
        return self.get_parameter(f"{LAYER}.weight").detach()


def pair(inputs: int = 3, outputs: int = 5, rank: int = 2) -> dict[str, Tensor]:
    return {
        f"{PEFT_NAME}.lora_A.default.weight": torch.randn(rank, inputs),
        f"{PEFT_NAME}.lora_B.default.weight": torch.randn(outputs, rank),
    }


def merge(network: nn.Module, tensors: dict[str, Tensor], alpha: float = 16.0, rank: int | None = None) -> None:
    merge_pairs(network, sort_tensors(tensors, FILE).pairs, alpha, rank, FILE, BASE)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 8), st.floats(0.5, 64))
def test_merged_weight_equals_w_plus_scaled_b_times_a(inputs: int, outputs: int, rank: int, alpha: float) -> None:
    network = Block(inputs, outputs)
    base, tensors = network.weight.clone(), pair(inputs, outputs, rank)
    a, b = tensors.values()
    x = torch.randn(4, inputs)
    merge(network, tensors, alpha)
    expected = x @ base.T + alpha / rank * (x @ a.T) @ b.T  # the output with unmerged layers
    torch.testing.assert_close(x @ network.weight.T, expected, rtol=1e-4, atol=1e-4)


def test_weight_is_merged_in_place_and_keeps_its_dtype() -> None:
    network = Block().to(torch.bfloat16)
    address, base, tensors = network.weight.data_ptr(), network.weight.float(), pair()
    a, b = tensors.values()
    merge(network, tensors, rank=2)
    assert network.weight.data_ptr() == address and network.weight.dtype == torch.bfloat16
    assert torch.equal(network.weight, (base + 8 * (b @ a)).to(torch.bfloat16))


def test_a_weight_in_float64_is_changed_in_that_type() -> None:
    network = Block().double()
    base, tensors = network.weight.numpy().copy(), pair()
    a, b = (tensor.double().numpy() for tensor in tensors.values())
    merge(network, tensors, rank=2)
    np.testing.assert_allclose(network.weight.numpy(), base + 8 * b @ a, rtol=0, atol=1e-14)


def test_all_forms_of_peft_tensor_names_are_recognised() -> None:
    full = torch.zeros(1)
    result = sort_tensors(
        {
            **pair(),
            "base_model.model.model.embed_tokens.weight": full,
            f"{PEFT_NAME}.base_layer.weight": full,
            "lm_head.weight": full,
        },
        FILE,
    )
    assert list(result.pairs) == [LAYER]
    assert set(result.full) == {"model.embed_tokens.weight", f"{LAYER}.weight", "lm_head.weight"}
    assert result.complete and not sort_tensors(pair(), FILE).complete and not LanguageTensors().complete
    short_names = {
        name.removeprefix("base_model.model.").replace(".default", ""): value for name, value in pair().items()
    }
    assert list(sort_tensors(short_names, FILE).pairs) == [LAYER]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({f"{PEFT_NAME}.lora_A.default.weight": None}, "has lora_B of model.layers.0.mlp.up_proj and not its lora_A"),
        ({f"{PEFT_NAME}.lora_B.default.weight": None}, "has lora_A of model.layers.0.mlp.up_proj and not its lora_B"),
        (
            {f"{PEFT_NAME}.lora_A.default.weight": torch.zeros(2, 4)},
            "lora_A has shape (2, 4); the language model in Qwen2",
        ),
        ({f"{PEFT_NAME}.lora_A.default.weight": torch.zeros(2, 4)}, "LoRA weights for another base"),
        ({f"{PEFT_NAME}.lora_A.default.weight": torch.zeros(2, 4)}, "calls for (2, 3)"),
        ({f"{PEFT_NAME}.lora_B.default.weight": torch.zeros(4, 2)}, "lora_B has shape (4, 2)"),
        ({f"{PEFT_NAME}.lora_B.default.weight": torch.zeros(5, 3)}, "calls for (5, 2)"),
        ({f"{PEFT_NAME}.lora_A.default.weight": torch.zeros(2)}, "lora_A has shape (2,)"),
        ({f"{PEFT_NAME}.lora_A.default.weight": torch.full((2, 3), torch.nan)}, "not finite"),
        ({f"{PEFT_NAME}.lora_magnitude_vector.default.weight": torch.zeros(5)}, "of a kind of change to weights"),
        (
            {name.replace("layers.0", "layers.7"): value for name, value in pair().items()},
            "for a layer that the language model in Qwen2 does not have",
        ),
        ({name.replace("mlp.up_proj", "mlp"): value for name, value in pair().items()}, "llm.base_model.model.model"),
    ],
)
def test_weights_for_another_base_are_refused(change: dict[str, Tensor | None], words: str) -> None:
    network = Block()
    tensors = {name: value for name, value in {**pair(), **change}.items() if value is not None}
    with pytest.raises(BadInput) as caught:
        merge(network, tensors)
    assert words in str(caught.value) and FILE in str(caught.value) and "\n" not in str(caught.value)


def test_a_stated_rank_must_be_that_of_the_weights() -> None:
    with pytest.raises(BadInput, match=r"lora_A has shape \(2, 3\); .* calls for \(4, 3\)"):
        merge(Block(), pair(), rank=4)


def test_single_weights_replace_those_of_the_base() -> None:
    network, replacement = Block(), torch.randn(5, 3)
    replace_weights(network, {f"{LAYER}.weight": replacement}, FILE, BASE)
    assert torch.equal(network.weight, replacement)
    for name, value, words in (
        (f"{LAYER}.weight", torch.zeros(4, 3), r"has shape \(4, 3\); the language model in Qwen2 calls for \(5, 3\)"),
        ("model.other.weight", torch.zeros(4), "llm.model.other.weight .* has no such tensor"),
        (f"{LAYER}.weight", replacement * torch.inf, "not finite"),
    ):
        with pytest.raises(BadInput, match=words):
            replace_weights(network, {name: value}, FILE, BASE)
