"""Finds the parameters of layers in a checkpoint by the stages behind them, such as `llm.layers.2.mlp.gate`.

Most are linear layers; some are norms, convolutions, biases and tables. Kernels for each channel, as those of an FSMN's
memory, have the weight [channels, taps]. Layers without a stage behind them have a name of their own (`OUTSIDE`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from workbench.conversion.checkpoint import plans_of
from workbench.conversion.plan import PlannedTensor
from workbench.trace.inside import layer_and_part

MAX_VALUES = 1 << 25  # of a weight; those of large vocabularies are left out
_STACKS = {
    "encoder.layers": r"(?:audio_)?encoder\.(encoders0|encoders|tp_encoders|layer_stack)\.(\d+)",
    "decoder.layers": r"decoder\.(decoders)\.(\d+)",
    "adaptor.layers": r"audio_adaptor\.(blocks)\.(\d+)",
    "tower.layers": r"tower\.(layers)\.(\d+)",
    "llm.layers": r"(blk)\.(\d+)",
}
"""What the names of the tensors of a stack begin with."""
_GROUPS = ("encoders0", "encoders", "tp_encoders")  # in the order of the computation
_Place = tuple[str, int, int]
"""A tensor, and which part of how many it is."""


def _projection(number: int, letter: str) -> tuple[_Place, ...]:
    separate = (f"self_attn.linear_{letter}", f"mhsa.w_{letter}s", f"attn_{letter}")
    return ("self_attn.linear_q_k_v", number, 3), ("attn_qkv", number, 3), *((name, 0, 1) for name in separate)


def _whole(*names: str) -> tuple[_Place, ...]:
    return tuple((name, 0, 1) for name in names)


_PARTS: Mapping[str, tuple[_Place, ...]] = {
    "attention.query": _projection(0, "q"),
    "attention.key": _projection(1, "k"),
    "attention.value": _projection(2, "v"),
    "attention.output": _whole("self_attn.linear_out", "mhsa.fc", "attn_output", "attn_out"),
    "cross_attention.query": _whole("src_attn.linear_q"),
    "cross_attention.key": (("src_attn.linear_k_v", 0, 2),),
    "cross_attention.value": (("src_attn.linear_k_v", 1, 2),),
    "cross_attention.output": _whole("src_attn.linear_out"),
    "mlp.gate": _whole("ffn_gate"),
    "mlp.up": _whole("feed_forward.w_1", "ffn_up", "fc1"),
    "mlp.down": _whole("feed_forward.w_2", "ffn_down", "fc2"),
    **{f"{name}.up": _whole(f"{name}.net.1") for name in ("ffn1", "ffn2")},
    **{f"{name}.down": _whole(f"{name}.net.4") for name in ("ffn1", "ffn2")},
    **{f"{name}.norm": _whole(f"{name}.net.0") for name in ("ffn1", "ffn2")},
    **{f"input_norm.{name}": _whole(f"mhsa.layer_norm_{name[0]}") for name in ("query", "key", "value")},
    "attention.positions": _whole("mhsa.linear_pos"),
    "attention.content_bias": _whole("mhsa.pos_bias_u"),
    "attention.position_bias": _whole("mhsa.pos_bias_v"),
    "conv.norm": _whole("conv.pre_layer_norm"),
    "conv.up": _whole("conv.pointwise_conv1"),
    "conv.depthwise": _whole("conv.depthwise_conv"),
    "conv.depthwise_norm": _whole("conv.batch_norm"),
    "convolution": _whole("conv.pointwise_conv2"),
    "norm": _whole("layer_norm"),
    "norm1": _whole("norm1", "attn_norm"),
    "norm2": _whole("norm2", "ffn_norm"),
    "attention.query_norm": _whole("attn_q_norm"),
    "attention.key_norm": _whole("attn_k_norm"),
    "norm3": _whole("norm3"),
    "mlp.hidden_norm": _whole("feed_forward.norm"),
    "fsmn": _whole("self_attn.fsmn_block"),
}
OUTSIDE: Mapping[str, tuple[str, ...]] = {
    "logits": ("ctc.ctc_lo", "decoder.output_layer", "output", "token_embd"),
    "encoder.queries": ("embed",),
    "encoder.subsampling.0": ("encoder.input_preprocessor.conv.0",),
    "encoder.subsampling.1": ("encoder.input_preprocessor.conv.2",),
    "encoder.subsampling.output": ("encoder.input_preprocessor.out",),
    "adaptor.linear1": ("encoder_projector.linear1", "audio_adaptor.linear1"),
    "adaptor.linear2": ("encoder_projector.linear2", "audio_adaptor.linear2"),
    "predictor.convolution": ("predictor.cif_conv1d",),
    "predictor.output": ("predictor.cif_output",),
}
"""Tensors outside the layers, by the names that stand for them."""
_BY_CHANNEL = (".fsmn", ".conv.depthwise")  # stored as [taps, channels]


def linear_layers(directory: Path, family: str, stages: Sequence[str]) -> dict[str, tuple[np.ndarray, ...]]:
    """Returns the weight in float32, [out, in] of a linear layer, and the bias [out] if there is one, of the layer
    behind each stage.

    Stages without a known layer are left out. Raises the errors of `plans_of`.
    """
    tensors = {each.name: each for plan in plans_of(directory, family) for each in plan.tensors}
    layers = {}
    for stage in stages:
        for start, (name, number, count) in _places(tensors, stage):
            weight, bias = (tensors.get(f"{start}{name}.{kind}") for kind in ("weight", "bias"))
            weight = weight or tensors.get(f"{start}{name}")
            if weight is None or math.prod(weight.shape) > MAX_VALUES:
                continue
            values = tuple(np.split(each.values, count)[number] for each in (weight, bias) if each)
            layers[stage] = (values[0].T,) if stage.endswith(_BY_CHANNEL) else values
            break
    return layers


def _places(tensors: Mapping[str, PlannedTensor], stage: str) -> list[tuple[str, _Place]]:
    """Returns what the names of a stage's tensors may be: their beginning, and the rest."""
    if stage in OUTSIDE:
        return [("", place) for place in _whole(*OUTSIDE[stage])]
    layer, part = layer_and_part(stage) or ("", "")
    stack, _, number = layer.rpartition(".")
    if stack not in _STACKS or part not in _PARTS:
        return []
    matches = (re.match(_STACKS[stack], name) for name in tensors)
    starts = {(_rank(match[1]), int(match[2])): f"{match[0]}." for match in matches if match}
    ordered = [starts[key] for key in sorted(starts)]
    return [(ordered[int(number)], place) for place in _PARTS[part]] if int(number) < len(ordered) else []


def _rank(group: str) -> int:
    return _GROUPS.index(group) if group in _GROUPS else 0
