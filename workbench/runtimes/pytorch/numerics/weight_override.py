"""Gives loaded networks other weights: those of the checkpoint rounded to 16 bits, or those of a GGUF file.

A network that computes in float64 with the very weights of a candidate in low precision is the exact reference for that
candidate: the only difference left is the rounding of activations. A tensor of the file must equal the checkpoint's
tensor, except for the rounding of its type. Rows that are farther from the checkpoint keep the checkpoint's values, so
that a wrong conversion still shows as an error of its stage. This file knows no family.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from workbench.compare.presets import PRESETS, preset_of
from workbench.core.errors import BadInput
from workbench.families.gguf_files import LANGUAGE_ARCHITECTURE
from workbench.formats.gguf_file import GgufFile, read_own_gguf
from workbench.runtimes.pytorch.numerics.arithmetic import HALVES

STORED_TYPE = "stored_type"  # the attribute of a parameter that names its type in the file
EMBEDDINGS, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
FEW_BITS = ("Q2", "Q3", "IQ1", "IQ2", "IQ3", "TQ")  # beginnings of types whose rounding has no preset
FEW_BITS_LIMIT = 0.7  # largest relative L2 of a row in one of these types
LIMIT_FACTOR = 2.0  # a row may be farther than the limit of its type for whole stages, as its values are few

_networks: ContextVar[list[nn.Module] | None] = ContextVar("networks", default=None)


def register_network(network: nn.Module) -> None:
    """Registers a network whose weights have been loaded, for `registered_networks`."""
    if (networks := _networks.get()) is not None:
        networks.append(network)


@contextlib.contextmanager
def registered_networks() -> Iterator[list[nn.Module]]:
    """Returns a list to which every network is added that is loaded inside the block."""
    networks: list[nn.Module] = []
    token = _networks.set(networks)
    try:
        yield networks
    finally:
        _networks.reset(token)


def override_weights(networks: list[nn.Module], source: str) -> None:
    """Replaces the weights of loaded networks.

    Args:
        source: `bfloat16` or `float16`, or the path of a GGUF file of the same model.

    Raises `BadInput` if the file cannot be read, or has none of the networks' tensors.
    """
    if source in HALVES:
        for network in networks:
            for parameter in network.parameters():
                if parameter.is_floating_point() and not parameter.is_meta:
                    parameter.data = parameter.data.to(HALVES[source]).to(parameter.dtype)
        return
    if not source.lower().endswith(".gguf"):
        raise BadInput(f"weights is {source!r:.80}; expected bfloat16, float16 or the path of a GGUF file")
    file = read_own_gguf(Path(source))
    replaced = sum([_replace_from_file(network, file) for network in networks])
    if not replaced:
        raise BadInput(f"{file.name} has no tensor of this model; expected a GGUF file made of the same checkpoint")


def _replace_from_file(network: nn.Module, file: GgufFile) -> int:
    """Replaces the weights that the file has; returns their number."""
    names = _language_names(network, file)
    _untie(network, file, names)
    count = 0
    for name, parameter in network.named_parameters():
        stored_name = next((each for each in (name, names.get(name, "")) if each in file.tensors), None)
        if stored_name is None or parameter.is_meta:
            continue
        values = file.array(stored_name)
        if values.size != parameter.numel():
            raise BadInput(
                f"tensor {stored_name} in {file.name} has the shape {values.shape}; expected {tuple(parameter.shape)}"
            )
        original = parameter.detach().float().cpu().numpy()
        if original.ndim > values.ndim and values.shape == (original.shape[-1], original.shape[0]):
            values = values.T  # a depthwise kernel, stored with one row per tap
        nearest = nearest_rows(
            original.reshape(len(original), -1), values.reshape(len(original), -1), file.tensors[stored_name].type
        )
        parameter.data = torch.from_numpy(nearest.reshape(original.shape)).to(parameter.device, parameter.dtype)
        setattr(parameter, STORED_TYPE, file.tensors[stored_name].type)
        count += 1
    return count


def nearest_rows(original: np.ndarray, stored: np.ndarray, kind: str) -> np.ndarray:
    """Returns the rows of a file, with the checkpoint's own rows where the two are farther apart than rounding.

    Args:
        original: [rows, columns] of the checkpoint.
        stored: the same from the file, dequantised.
        kind: the type in the file, such as `Q8_0`.
    """
    limit = FEW_BITS_LIMIT if kind.startswith(FEW_BITS) else LIMIT_FACTOR * _limit(kind)
    size = np.sqrt(np.mean(original.astype(np.float64) ** 2))  # a row of small values is rounded like the others
    sizes = np.maximum(np.linalg.norm(original, axis=1), 0.1 * size * np.sqrt(original.shape[1]))
    is_near = np.linalg.norm(original - stored, axis=1) <= limit * sizes
    rows: np.ndarray = np.where(is_near[:, None], stored, original).astype(np.float32)
    return rows


def _limit(kind: str) -> float:
    preset, _ = preset_of({"quantization": kind.lower()})
    reference = preset if kind not in ("F32", "F64") else PRESETS["f32"]
    return reference.limits.relative_l2


def _language_names(network: nn.Module, file: GgufFile) -> Mapping[str, str]:
    """Returns llama.cpp's names of a network of transformers, by its own names; empty for other networks."""
    if not hasattr(network, "lm_head"):
        return {}
    import gguf

    kind = file.text(LANGUAGE_ARCHITECTURE) if LANGUAGE_ARCHITECTURE in file.metadata else file.architecture
    architecture = next((key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == kind), None)
    if architecture is None:
        return {}
    layers = sum(name.endswith("input_layernorm.weight") for name, _ in network.named_parameters())
    table = gguf.get_tensor_name_map(architecture, layers)
    names = [name for name, _ in network.named_parameters(remove_duplicate=False)]
    pairs = ((name, table.get_name(name, try_suffixes=(".weight", ".bias"))) for name in names)
    return {name: stored for name, stored in pairs if stored}


def _untie(network: nn.Module, file: GgufFile, names: Mapping[str, str]) -> None:
    """Gives the output matrix weights of its own where the file has it beside the embeddings."""
    parameters = dict(network.named_parameters(remove_duplicate=False))
    if parameters.get(OUTPUT) is None or parameters[OUTPUT] is not parameters.get(EMBEDDINGS):
        return
    if names.get(OUTPUT, "") in file.tensors:
        tied_weight: Tensor = parameters[OUTPUT]
        network.lm_head.weight = nn.Parameter(tied_weight.detach().clone(), requires_grad=False)  # type: ignore[union-attr]
