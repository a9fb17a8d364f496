"""Low-rank changes to a language model's weights, added to them once: W + alpha / r * B A.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, with the names that the peft package gives
the tensors. The sums are made in float32 and in place, one weight after another, so that a model is never in memory
twice. This file opens no files and knows no family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from workbench.errors import BadInput

WRAPPER = "base_model.model."  # what peft puts before the names of the model it wraps
PAIR = re.compile(r"(?P<module>.+)\.lora_(?P<half>[AB])(?:\.default)?\.weight")


@dataclass
class Pair:
    """A change of rank r to the weight of one linear layer."""

    a: Tensor | None = None  # [r, in]
    b: Tensor | None = None  # [out, r]


@dataclass
class LanguageTensors:
    """A checkpoint's tensors of its language half."""

    full: dict[str, Tensor] = field(default_factory=dict)  # weights as such, by transformers' names
    pairs: dict[str, Pair] = field(default_factory=dict)  # by the name of the linear layer

    @property
    def complete(self) -> bool:
        """Whether the weights are all here, rather than in the base model's own directory."""
        return any(name.endswith("embed_tokens.weight") for name in self.full)


def sort_tensors(tensors: Mapping[str, Tensor], where: str) -> LanguageTensors:
    """The tensors of a language half as full weights and low-rank pairs, by the names of the plain model.

    Args:
        tensors: by the names of the model or of peft's wrapper around it.
        where: names their file in messages.

    Raises `BadInput` for half a pair, and for other kinds of changes that peft knows.
    """
    found = LanguageTensors()
    for long_name, value in tensors.items():
        name = long_name.removeprefix(WRAPPER)
        if pair := PAIR.fullmatch(name):
            setattr(found.pairs.setdefault(pair["module"], Pair()), pair["half"].lower(), value)
        elif "lora_" in name or "modules_to_save" in name:
            raise BadInput(f"{where} has tensor {long_name}, of a kind of change to weights that is not supported")
        else:
            found.full[name.replace(".base_layer.", ".")] = value
    for module, halves in found.pairs.items():
        if halves.a is None or halves.b is None:
            here, gone = ("B", "A") if halves.a is None else ("A", "B")
            raise BadInput(f"{where} has lora_{here} of {module} and not its lora_{gone}")
    return found


@torch.no_grad()
def merge_pairs(
    network: nn.Module, pairs: Mapping[str, Pair], alpha: float, rank: int | None, where: str, base: str
) -> None:
    """Adds every pair to the weight of its layer, in place.

    Args:
        alpha: numerator of the scale; the rank of the pair is its denominator.
        rank: as the checkpoint states it, or None where it does not.
        where: names the file of the pairs in messages.
        base: names the language model.

    Raises `BadInput` where a pair is for a layer that the network does not have, or one of another size.
    """
    weights = dict(network.named_parameters())
    for module, pair in pairs.items():
        assert pair.a is not None and pair.b is not None
        name = f"llm.{WRAPPER}{module}"
        weight = weights.get(f"{module}.weight")
        if weight is None or weight.ndim != 2:
            raise BadInput(
                f"{where} has LoRA weights for another base: {name}.lora_A is for a layer that {base} does not have"
            )
        outputs, inputs = weight.shape
        r = rank or int(pair.a.shape[0])
        for half, tensor, expected in (("A", pair.a, (r, inputs)), ("B", pair.b, (outputs, r))):
            if tuple(tensor.shape) != expected or not tensor.is_floating_point():
                raise BadInput(
                    f"{where} has LoRA weights for another base: {name}.lora_{half} has shape {tuple(tensor.shape)}; "
                    f"{base} calls for {expected}"
                )
            if not tensor.isfinite().all():
                raise BadInput(f"{where}: {name}.lora_{half} holds values that are not finite; expected numbers")
        a, b = (tensor.to(weight.device, torch.float32) for tensor in (pair.a, pair.b))
        weight.copy_(torch.addmm(weight.float(), b, a, alpha=alpha / r))


@torch.no_grad()
def replace_weights(network: nn.Module, full: Mapping[str, Tensor], where: str, base: str) -> None:
    """Puts single weights that a checkpoint has in full into the network, in place; arguments as of `merge_pairs`."""
    weights = dict(network.named_parameters())
    for name, value in full.items():
        if name not in weights or weights[name].shape != value.shape:
            found = f"has shape {tuple(value.shape)}"
            expected = f"calls for {tuple(weights[name].shape)}" if name in weights else "has no such tensor"
            raise BadInput(f"{where} has weights for another base: llm.{name} {found}; {base} {expected}")
        if not value.isfinite().all():
            raise BadInput(f"{where}: tensor llm.{name} holds values that are not finite; expected numbers")
        weights[name].copy_(value)
