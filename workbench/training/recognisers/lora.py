"""Low-rank changes of a frozen language model, as in the training of FireRedASR-LLM: y = W x + (alpha / r) B A x.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. The names are those of the peft package.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RANK, ALPHA = 64, 16
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj", "down_proj")
PREFIX = "llm.base_model.model."


class LoraLinear(nn.Module):
    """A frozen linear layer and its low-rank change, which is zero at first."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(RANK, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, RANK))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """Maps [..., in] to [..., out]."""
        return self.base_layer(x) + F.linear(F.linear(x, self.lora_A), self.lora_B) * (ALPHA / RANK)


def add_lora(language: Any) -> None:
    """Freezes the language model, and adds trainable low-rank changes to its projections."""
    language.requires_grad_(False)
    for layer in language.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name in TARGETS:
                if hasattr(part, name):
                    setattr(part, name, LoraLinear(getattr(part, name)))


def lora_tensors(language: Any) -> dict[str, Tensor]:
    """Returns the changes by the checkpoint's names."""
    return {
        f"{PREFIX}{name}.default.weight": value
        for name, value in language.state_dict().items()
        if name.rpartition(".")[2] in ("lora_A", "lora_B")
    }


def base_tensors(language: Any) -> dict[str, Tensor]:
    """Returns the frozen weights by their original names."""
    return {
        name.replace(".base_layer.", "."): value
        for name, value in language.state_dict().items()
        if name.rpartition(".")[2] not in ("lora_A", "lora_B")
    }
