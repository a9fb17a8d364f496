"""Low-rank changes (LoRA) to a language model's weights, added to them once: W + alpha / r * B A.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, with the tensor names of the peft package or
of FunASR. The sums are computed in float32 or wider, one weight after another, so that a model is never in memory
twice. This file opens no files and knows no family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from workbench.core.errors import BadInput

WRAPPER = "base_model.model."  # the prefix that peft puts before the names of the wrapped model
# Of peft, and of FunASR's own layers, which have no `.weight` at the end.
PAIR = re.compile(r"(?P<module>.+)\.lora_(?P<half>[AB])(?:(?:\.default)?\.weight)?")


@dataclass
class Pair:
    """A change of rank r to the weight of one linear layer."""

    name: str  # of the layer in the file
    a: Tensor | None = None  # [r, in]
    b: Tensor | None = None  # [out, r]


@dataclass
class LanguageTensors:
    """The tensors of a checkpoint that belong to its language model."""

    full: dict[str, Tensor] = field(default_factory=dict)  # complete weights, by transformers' names
    pairs: dict[str, Pair] = field(default_factory=dict)  # by the name of the linear layer

    @property
    def complete(self) -> bool:
        """Whether the checkpoint has all weights, so that the base model's directory is not needed."""
        return any(name.endswith("embed_tokens.weight") for name in self.full)


def sort_tensors(tensors: Mapping[str, Tensor], where: str) -> LanguageTensors:
    """Sorts a language model's tensors into complete weights and low-rank pairs, by the names of the plain model.

    Args:
        tensors: by the names of the model or of peft's wrapper around it.
        where: the name of their file in messages.

    Raises `BadInput` for an incomplete pair, and for other kinds of changes that peft knows.
    """
    sorted_tensors = LanguageTensors()
    for long_name, value in tensors.items():
        name = long_name.removeprefix(WRAPPER)
        if pair := PAIR.fullmatch(name):
            wrapped = long_name.removesuffix(name) + pair["module"]
            setattr(sorted_tensors.pairs.setdefault(pair["module"], Pair(wrapped)), pair["half"].lower(), value)
        elif "lora_" in name or "modules_to_save" in name:
            raise BadInput(f"{where} has tensor {long_name}, of a kind of change to weights that is not supported")
        else:
            sorted_tensors.full[name.replace(".base_layer.", ".")] = value
    for module, halves in sorted_tensors.pairs.items():
        if halves.a is None or halves.b is None:
            present, absent = ("B", "A") if halves.a is None else ("A", "B")
            raise BadInput(f"{where} has lora_{present} of {module} and not its lora_{absent}")
    return sorted_tensors


def check_pair(
    pair: Pair, shape: Sequence[int] | None, rank: int | None, where: str, base: str
) -> tuple[Tensor, Tensor, int]:
    """Returns both factors of a pair, a and b, and its rank, if they fit the weight of their layer.

    Args:
        shape: the shape of its weight; None if the language model has no such layer.

    The other arguments and the errors are those of `merge_pairs`.
    """
    assert pair.a is not None and pair.b is not None
    name = f"llm.{pair.name}"
    if shape is None or len(shape) != 2:
        raise BadInput(
            f"{where} has LoRA weights for another base: {name}.lora_A is for a layer that {base} does not have"
        )
    outputs, inputs = shape
    r = rank or int(pair.a.shape[0])
    for factor, tensor, expected in (("A", pair.a, (r, inputs)), ("B", pair.b, (outputs, r))):
        if tuple(tensor.shape) != expected or not tensor.is_floating_point():
            raise BadInput(
                f"{where} has LoRA weights for another base: {name}.lora_{factor} has shape {tuple(tensor.shape)}; "
                f"{base} calls for {expected}"
            )
        if not tensor.isfinite().all():
            raise BadInput(f"{where}: {name}.lora_{factor} holds values that are not finite; expected numbers")
    return pair.a, pair.b, r


@torch.no_grad()
def merge_pairs(
    network: nn.Module, pairs: Mapping[str, Pair], alpha: float, rank: int | None, where: str, base: str
) -> None:
    """Adds every pair to the weight of its layer, in place.

    Args:
        alpha: numerator of the scale; the rank of the pair is its denominator.
        rank: the rank that the checkpoint states, or None if it states none.
        where: the name of the pairs' file in messages.
        base: the name of the language model in messages.

    Raises `BadInput` if a pair is for a layer that the network does not have, or for a layer of another size.
    """
    weights = dict(network.named_parameters())
    for name, merged in _merged(weights, pairs, alpha, rank, where, base):
        weights[name].copy_(merged)


@torch.no_grad()
def merged_tensors(tensors: Mapping[str, Tensor], alpha: float, rank: int, where: str) -> dict[str, Tensor]:
    """Returns a language model's tensors with every pair added to the weight of its layer; the others are not copied.

    Args:
        tensors: complete weights and pairs.

    The other arguments and the errors are those of `sort_tensors` and `merge_pairs`.
    """
    parts = sort_tensors(tensors, where)
    for name, merged in _merged(parts.full, parts.pairs, alpha, rank, where, "its language model"):
        parts.full[name] = merged.to(parts.full[name].dtype)
    return parts.full


def _merged(
    weights: Mapping[str, Tensor], pairs: Mapping[str, Pair], alpha: float, rank: int | None, where: str, base: str
) -> Iterator[tuple[str, Tensor]]:
    """Yields the name of each weight that has a pair, and W + alpha / r * B A in float32 or wider."""
    for module, pair in pairs.items():
        name = f"{module}.weight"
        weight = weights.get(name)
        a, b, r = check_pair(pair, None if weight is None else weight.shape, rank, where, base)
        assert weight is not None
        dtype = torch.promote_types(weight.dtype, torch.float32)
        a, b = (tensor.to(weight.device, dtype) for tensor in (a, b))
        yield name, torch.addmm(weight.to(dtype), b, a, alpha=alpha / r)


def check_replacement(name: str, value: Tensor, shape: Sequence[int] | None, where: str, base: str) -> None:
    """Raises `BadInput` if the language model has no tensor of this name, or has one of another shape."""
    if shape is None or tuple(shape) != tuple(value.shape):
        expected = "has no such tensor" if shape is None else f"calls for {tuple(shape)}"
        actual = f"has shape {tuple(value.shape)}"
        raise BadInput(f"{where} has weights for another base: llm.{name} {actual}; {base} {expected}")


@torch.no_grad()
def replace_weights(network: nn.Module, full: Mapping[str, Tensor], where: str, base: str) -> None:
    """Puts the complete weights of a checkpoint into the network, in place; arguments as in `merge_pairs`."""
    weights = dict(network.named_parameters())
    for name, value in full.items():
        check_replacement(name, value, weights[name].shape if name in weights else None, where, base)
        if not value.isfinite().all():
            raise BadInput(f"{where}: tensor llm.{name} holds values that are not finite; expected numbers")
        weights[name].copy_(value)
