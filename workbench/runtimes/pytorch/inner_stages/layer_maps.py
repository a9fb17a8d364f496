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
    is_input: bool = False
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


def _output_of(module: str, heads: bool = False, share: tuple[int, int] = (0, 1)) -> Place:
    return Place(module, share=share, heads=heads)


def _input_of(module: str) -> Place:
    return Place(module, is_input=True)


def _context_and_output(output: str, stage: str = "attention") -> dict[str, Place]:
    """Returns the places around an output projection."""
    return {f"{stage}.context": _input_of(output), f"{stage}.output": _output_of(output)}


def _fused_projections(module: str) -> dict[str, Place]:
    names = ("query", "key", "value")
    return {f"attention.{name}": _output_of(module, True, (number, 3)) for number, name in enumerate(names)}


def _separate_projections(modules: str) -> dict[str, Place]:
    """Returns the places of three projections; `modules` has {} where their letter stands."""
    return {f"attention.{name}": _output_of(modules.format(name[0]), True) for name in ("query", "key", "value")}


SANM = LayerMap(
    {
        "input_norm": _output_of("norm1"),
        **_fused_projections("self_attn.linear_q_k_v"),
        **_context_and_output("self_attn.linear_out"),
        "attention.residual": _input_of("norm2"),
        "mlp_norm": _output_of("norm2"),
        "mlp.up": _output_of("feed_forward.w_1"),
        "mlp.activation": _input_of("feed_forward.w_2"),
        "mlp.down": _output_of("feed_forward.w_2"),
    },
    {"attention": "self_attn"},
)
"""A layer of the SAN-M encoder; its stage `fsmn` is one that any glob takes."""

SANM_DECODER = LayerMap(
    {
        "mlp_norm": _output_of("norm1"),
        "mlp.up": _output_of("feed_forward.w_1"),
        "mlp.activation": _input_of("feed_forward.norm"),
        "mlp.hidden_norm": _output_of("feed_forward.norm"),
        "mlp.down": _output_of("feed_forward.w_2"),
        "fsmn_norm": _output_of("norm2"),
        "fsmn": _output_of("self_attn"),
        "fsmn_residual": _input_of("norm3"),
        "input_norm": _output_of("norm3"),
        "cross_attention.query": _output_of("src_attn.linear_q", True),
        "cross_attention.key": _output_of("src_attn.linear_k_v", True, (0, 2)),
        "cross_attention.value": _output_of("src_attn.linear_k_v", True, (1, 2)),
        **_context_and_output("src_attn.linear_out", "cross_attention"),
    },
    {"cross_attention": "src_attn"},
)
"""A layer of Paraformer's decoder."""


def _half_step(name: str) -> dict[str, Place]:
    """Returns the places of one of a Conformer's two feed-forward parts."""
    return {
        f"{name}.norm": _output_of(f"{name}.net.0"),
        f"{name}.up": _output_of(f"{name}.net.1"),
        f"{name}.activation": _input_of(f"{name}.net.4"),
        f"{name}.down": _output_of(f"{name}.net.4"),
        f"{name}.residual": _output_of(name),
    }


CONFORMER = LayerMap(
    {
        **_half_step("ffn1"),
        **{f"input_norm.{name}": _output_of(f"mhsa.layer_norm_{name[0]}") for name in ("query", "key", "value")},
        **_separate_projections("mhsa.w_{}s"),
        **_context_and_output("mhsa.fc"),
        "attention.residual": _output_of("mhsa"),
        "conv.norm": _output_of("conv.pre_layer_norm"),
        "conv.depthwise": _input_of("conv.batch_norm"),
        "conv.depthwise_norm": _output_of("conv.batch_norm"),
        "conv.residual": _output_of("conv"),
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
    {**SANM.places, **_separate_projections("self_attn.linear_{}")},
    SANM.attention,
)
"""A block of Fun-ASR-Nano's adaptor or CTC branch."""

LANGUAGE = LayerMap(
    {
        "input_norm": _output_of("input_layernorm"),
        **_separate_projections("self_attn.{}_proj"),
        "attention.query_norm": _output_of("self_attn.q_norm"),
        "attention.key_norm": _output_of("self_attn.k_norm"),
        **_context_and_output("self_attn.o_proj"),
        "attention.residual": _input_of("post_attention_layernorm"),
        "mlp_norm": _output_of("post_attention_layernorm"),
        "mlp.gate": _output_of("mlp.gate_proj"),
        "mlp.up": _output_of("mlp.up_proj"),
        "mlp.activation": _input_of("mlp.down_proj"),
        "mlp.down": _output_of("mlp.down_proj"),
    },
    {"attention": "self_attn"},
    rotary=True,
    rounded=False,
)
"""A layer of a language model of transformers."""

TOWER = LayerMap(
    {
        "input_norm": _output_of("self_attn_layer_norm"),
        **_separate_projections("self_attn.{}_proj"),
        **_context_and_output("self_attn.out_proj"),
        "attention.residual": _input_of("final_layer_norm"),
        "mlp_norm": _output_of("final_layer_norm"),
        "mlp.up": _output_of("fc1"),
        "mlp.activation": _input_of("fc2"),
        "mlp.down": _output_of("fc2"),
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
