"""The places of the inner stages in each kind of layer: which module a stage enters or leaves.

The networks' own code does not name these stages. `inside` reads them at the places listed here. A place whose module a
layer does not have is left out. The names are those of `workbench.trace.inside`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn import functional as F

from workbench.runtimes.pytorch.networks.conformer import ConformerEncoder
from workbench.runtimes.pytorch.networks.nano_encoder import Adaptor
from workbench.runtimes.pytorch.networks.sanm import SanmEncoder
from workbench.runtimes.pytorch.networks.sanm_decoder import SanmDecoder


@dataclass(frozen=True)
class Place:
    """The value that enters or leaves a module of a layer.

    `share` (i, n) is the i-th of n equal parts of its channels; `heads` says that channels are to be divided into
    heads.
    """

    module: str
    enters: bool = False
    share: tuple[int, int] = (0, 1)
    heads: bool = False


@dataclass(frozen=True)
class FunctionPlace:
    """The first argument and the result of a torch function, where a module of a layer calls it; empty for no stage."""

    module: str
    function: Callable[..., Any]
    argument: str
    result: str


@dataclass(frozen=True)
class LayerMap:
    """The places of one kind of layer."""

    places: Mapping[str, Place]
    attention: Mapping[str, str] = field(default_factory=dict)
    """Modules that call attention, by the beginning of their stages, such as `cross_attention`."""
    functions: Sequence[FunctionPlace] = ()
    rotary: bool = False  # whether queries and keys are rotated before attention
    batched: bool = True  # whether values have a batch dimension
    rounded: bool = True  # whether attention in half precision rounds every step


def _after(module: str, heads: bool = False, share: tuple[int, int] = (0, 1)) -> Place:
    return Place(module, share=share, heads=heads)


def _before(module: str) -> Place:
    return Place(module, enters=True)


def _around_output(output: str, stage: str = "attention") -> dict[str, Place]:
    """Returns the places around an output projection."""
    return {f"{stage}.context": _before(output), f"{stage}.output": _after(output)}


def _thirds(module: str) -> dict[str, Place]:
    names = ("query", "key", "value")
    return {f"attention.{name}": _after(module, True, (number, 3)) for number, name in enumerate(names)}


def _each(modules: str, stage: str = "attention") -> dict[str, Place]:
    """Returns the places of three projections; `modules` has {} where their letter stands."""
    return {f"{stage}.{name}": _after(modules.format(name[0]), True) for name in ("query", "key", "value")}


SANM = LayerMap(
    {
        "input_norm": _after("norm1"),
        **_thirds("self_attn.linear_q_k_v"),
        **_around_output("self_attn.linear_out"),
        "attention.residual": _before("norm2"),
        "mlp_norm": _after("norm2"),
        "mlp.up": _after("feed_forward.w_1"),
        "mlp.activation": _before("feed_forward.w_2"),
        "mlp.down": _after("feed_forward.w_2"),
    },
    {"attention": "self_attn"},
)
"""A layer of the SAN-M encoder; its stage `fsmn` is one that any glob takes."""

SANM_DECODER = LayerMap(
    {
        "mlp_norm": _after("norm1"),
        "mlp.up": _after("feed_forward.w_1"),
        "mlp.activation": _before("feed_forward.norm"),
        "mlp.hidden_norm": _after("feed_forward.norm"),
        "mlp.down": _after("feed_forward.w_2"),
        "fsmn_norm": _after("norm2"),
        "fsmn": _after("self_attn"),
        "fsmn_residual": _before("norm3"),
        "input_norm": _after("norm3"),
        "cross_attention.query": _after("src_attn.linear_q", True),
        "cross_attention.key": _after("src_attn.linear_k_v", True, (0, 2)),
        "cross_attention.value": _after("src_attn.linear_k_v", True, (1, 2)),
        **_around_output("src_attn.linear_out", "cross_attention"),
    },
    {"cross_attention": "src_attn"},
)
"""A layer of Paraformer's decoder."""


def _half_step(name: str) -> dict[str, Place]:
    """Returns the places of one of a Conformer's two feed-forward parts."""
    return {
        f"{name}.norm": _after(f"{name}.net.0"),
        f"{name}.up": _after(f"{name}.net.1"),
        f"{name}.activation": _before(f"{name}.net.4"),
        f"{name}.down": _after(f"{name}.net.4"),
        f"{name}.residual": _after(name),
    }


CONFORMER = LayerMap(
    {
        **_half_step("ffn1"),
        **{f"input_norm.{name}": _after(f"mhsa.layer_norm_{name[0]}") for name in ("query", "key", "value")},
        **_each("mhsa.w_{}s"),
        **_around_output("mhsa.fc"),
        "attention.residual": _after("mhsa"),
        "conv.norm": _after("conv.pre_layer_norm"),
        "conv.depthwise": _before("conv.batch_norm"),
        "conv.depthwise_norm": _after("conv.batch_norm"),
        "conv.residual": _after("conv"),
        **_half_step("ffn2"),
    },
    {"attention": "mhsa"},
    (
        FunctionPlace("conv", F.glu, "conv.up", "conv.gate"),
        FunctionPlace("conv", F.silu, "", "conv.activation"),
    ),
)
"""A block of FireRedASR's Conformer."""

NANO_ADAPTOR = LayerMap(
    {**SANM.places, **_each("self_attn.linear_{}")},
    SANM.attention,
)
"""A block of Fun-ASR-Nano's adaptor or CTC branch."""

LANGUAGE = LayerMap(
    {
        "input_norm": _after("input_layernorm"),
        **_each("self_attn.{}_proj"),
        "attention.query_norm": _after("self_attn.q_norm"),
        "attention.key_norm": _after("self_attn.k_norm"),
        **_around_output("self_attn.o_proj"),
        "attention.residual": _before("post_attention_layernorm"),
        "mlp_norm": _after("post_attention_layernorm"),
        "mlp.gate": _after("mlp.gate_proj"),
        "mlp.up": _after("mlp.up_proj"),
        "mlp.activation": _before("mlp.down_proj"),
        "mlp.down": _after("mlp.down_proj"),
    },
    {"attention": "self_attn"},
    rotary=True,
    rounded=False,
)
"""A layer of a language model of transformers."""

TOWER = LayerMap(
    {
        "input_norm": _after("self_attn_layer_norm"),
        **_each("self_attn.{}_proj"),
        **_around_output("self_attn.out_proj"),
        "attention.residual": _before("final_layer_norm"),
        "mlp_norm": _after("final_layer_norm"),
        "mlp.up": _after("fc1"),
        "mlp.activation": _before("fc2"),
        "mlp.down": _after("fc2"),
    },
    {"attention": "self_attn"},
    batched=False,
    rounded=False,
)
"""A layer of Qwen3-Omni's audio tower."""


def stacks_of(network: nn.Module) -> Iterator[tuple[str, Sequence[nn.Module], LayerMap]]:
    """Yields (stack, layers, map) of the networks of this project inside a network, such as `encoder.layers`."""
    for module in network.modules():
        if isinstance(module, SanmEncoder):
            yield "encoder.layers", module.layers, SANM
        elif isinstance(module, SanmDecoder):
            yield "decoder.layers", module.layers, SANM_DECODER
        elif isinstance(module, ConformerEncoder):
            yield "encoder.layers", list(module.layer_stack), CONFORMER
        elif isinstance(module, Adaptor):
            yield module.stack, list(getattr(module, "blocks", ())), NANO_ADAPTOR


def layers_of(network: nn.Module) -> list[nn.Module]:
    """Returns the layers of all networks of this project inside a network."""
    return [layer for _, layers, _ in stacks_of(network) for layer in layers]
