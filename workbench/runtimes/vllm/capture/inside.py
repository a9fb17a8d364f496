"""The stages inside the decoder layers of vLLM's models, read at their modules.

vLLM's Qwen2, Qwen3, Llama and Mistral share the names of these modules; a stage whose module a layer does not have is
left out. Query, key and value are one product there, and so are gate and up. The attention kernels keep no weights, so
there is no stage of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

ReadRows = Callable[[slice], Tensor]
"""Returns some rows of a stage."""


@dataclass(frozen=True)
class Place:
    """A module of a layer, and the stages that are the parts of its output or, with `is_input`, of its input.

    Several values have one part each; one value is split into as many parts as there are names. `heads` divides each
    into heads.
    """

    module: str
    parts: tuple[str, ...]
    heads: bool = False
    is_input: bool = False


PLACES = (
    Place("input_layernorm", ("input_norm",)),
    Place("self_attn.qkv_proj", ("attention.query", "attention.key", "attention.value"), heads=True),
    Place("self_attn.q_norm", ("attention.query_norm",), heads=True),
    Place("self_attn.k_norm", ("attention.key_norm",), heads=True),
    # All layers share one module for the rotary embedding, so its results are read where each layer's attention begins.
    Place("self_attn.attn", ("attention.query_rope", "attention.key_rope"), heads=True, is_input=True),
    Place("self_attn.attn", ("attention.context",)),
    Place("self_attn.o_proj", ("attention.output",)),
    Place("post_attention_layernorm", ("mlp_norm", "attention.residual")),
    Place("mlp.gate_up_proj", ("mlp.gate", "mlp.up")),
    Place("mlp.act_fn", ("mlp.activation",)),
    Place("mlp.down_proj", ("mlp.down",)),
)


def hook_inside(stage: str, layer: nn.Module, record: Callable[[str, ReadRows], None]) -> list[Any]:
    """Hooks the modules of a decoder layer; returns the handles.

    Args:
        stage: of the layer, such as `llm.layers.3`.
        record: takes each stage inside it at each pass, and how to get its rows.
    """
    handles = []
    for place in PLACES:
        module = _module(layer, place.module)
        if module is not None:
            read = _reader(stage, layer, place, record)
            handles.append(
                module.register_forward_pre_hook(read) if place.is_input else module.register_forward_hook(read)
            )
    return handles


def _module(layer: nn.Module, name: str) -> nn.Module | None:
    module: Any = layer
    for word in name.split("."):
        module = getattr(module, word, None)
    return module if isinstance(module, nn.Module) else None


def _reader(stage: str, layer: nn.Module, place: Place, record: Callable[[str, ReadRows], None]) -> Callable[..., None]:
    attention: Any = _module(layer, "self_attn")

    def read(_module: nn.Module, inputs: Any, output: Any = None) -> None:
        values = _values(inputs if place.is_input else output, place, attention)
        for part, value in zip(place.parts, values, strict=False):
            record(f"{stage}.{part}", _rows(value, attention.head_dim if place.heads else None))

    return read


def _values(value: Any, place: Place, attention: Any) -> Sequence[Tensor]:
    """Returns one value for each part of a module's input or output, or fewer if it does not give them all."""
    values = [each for each in value if isinstance(each, Tensor)] if isinstance(value, tuple) else [value]
    if len(values) > 1 or len(place.parts) == 1 or not place.module.endswith("_proj"):
        return values
    if place.heads:
        parts: Sequence[Tensor] = values[0].split([attention.q_size, attention.kv_size, attention.kv_size], dim=-1)
        return parts
    return values[0].chunk(len(place.parts), dim=-1)


def _rows(value: Tensor, width: int | None) -> ReadRows:
    def read_rows(rows: slice) -> Tensor:
        values = value[rows]
        return values if width is None else values.reshape(len(values), -1, width)

    return read_rows
