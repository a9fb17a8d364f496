"""Stages inside a layer: their names in the order of the computation, and which globs reach them.

A stage inside a layer is `X.part`, where X is a layer such as `encoder.layers.3`. Runtimes compute these stages only
when a glob of at least four parts between dots matches them, such as `encoder.layers.3.*` or
`llm.layers.*.attention.weights`. Shorter globs such as `*` or `encoder.layers.*` take whole layers. This file knows no
models and no runtimes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

from workbench.core.errors import BadInput
from workbench.trace.step_names import glob_of_stage, step_and_stage

MAX_WEIGHTS = 1 << 28  # attention weights of one layer: 20 heads of a recording of two minutes at 25 rows a second

PARTS: Mapping[str, str] = {
    "ffn1.norm": "after the norm in front of the first feed-forward part (Conformer)",
    "ffn1.up": "after its first projection",
    "ffn1.activation": "after its activation",
    "ffn1.down": "after its second projection, before the half of it is added",
    "ffn1.residual": "the residual stream after it",
    "input_norm": "after the norm in front of attention",
    "input_norm.query": "after the norm in front of the query projection, where query, key and value have their own",
    "input_norm.key": "after the norm in front of the key projection",
    "input_norm.value": "after the norm in front of the value projection",
    "attention.query": "queries after their projection",
    "attention.key": "keys after their projection",
    "attention.value": "values after their projection",
    "attention.query_norm": "queries after the norm of each head",
    "attention.key_norm": "keys after the norm of each head",
    "attention.query_rope": "queries after the rotary embedding",
    "attention.key_rope": "keys after the rotary embedding",
    "cache.key": "keys of all positions so far, as the cache holds them after a decoding step",
    "cache.value": "values of all positions so far, as the cache holds them",
    "attention.weights": "softmax of the scores",
    "attention.context": "weights times values, heads joined",
    "attention.output": "after the output projection",
    "attention": "the same as attention.output; a stage of its own that `*` takes too",
    "fsmn": "output of the FSMN memory block",
    "attention.residual": "the residual stream after attention",
    "cross_attention.query": "queries of the tokens",
    "cross_attention.key": "keys of the sound",
    "cross_attention.value": "values of the sound",
    "cross_attention.weights": "softmax of the scores, tokens by frames",
    "cross_attention.context": "weights times values, heads joined",
    "cross_attention.output": "after the output projection",
    "conv.norm": "after the norm in front of the convolution (Conformer)",
    "conv.up": "after the first pointwise convolution",
    "conv.gate": "after the gate",
    "conv.depthwise": "after the convolution over time",
    "conv.depthwise_norm": "after the norm behind it",
    "conv.activation": "after the activation",
    "convolution": "output of the convolution part; `*` takes it too",
    "conv.residual": "the residual stream after it",
    "ffn2.norm": "after the norm in front of the second feed-forward part (Conformer)",
    "ffn2.up": "after its first projection",
    "ffn2.activation": "after its activation",
    "ffn2.down": "after its second projection, before the half of it is added",
    "ffn2.residual": "the residual stream after it, before the layer's last norm",
    "mlp_norm": "after the norm in front of the feed-forward part",
    "mlp.gate": "the gate's projection, before its activation",
    "mlp.up": "the first projection",
    "mlp.activation": "what enters the last projection: the activated gate times `up`, or the activated `up`",
    "mlp.down": "after the last projection",
}
"""What each part of a layer holds, in the order of the computation of most layers. Dimensions: rows x width; queries,
keys and values rows x heads x head width; weights heads x queries x keys."""

DECODER_PARTS: Mapping[str, str] = {
    "mlp_norm": "after the norm in front of the feed-forward part",
    "mlp.up": "the first projection",
    "mlp.activation": "after the activation",
    "mlp.hidden_norm": "after the norm over the hidden units; it enters the last projection",
    "mlp.down": "after the last projection",
    "fsmn_norm": "after the norm in front of the FSMN memory",
    "fsmn": "output of the FSMN memory block",
    "fsmn_residual": "the residual stream after the memory",
    "input_norm": "after the norm in front of attention",
    **{part: what for part, what in PARTS.items() if part.startswith("cross_attention.")},
}
"""The parts of a layer of Paraformer's decoder, which begins with its feed-forward part."""

_UNFILTERED_PARTS = ("attention", "convolution", "fsmn")  # parts of an encoder's layer that any glob takes
_LAYER = re.compile(r"(?P<layer>(?P<stack>.+\.layers)\.[0-9]{1,9})\.(?P<part>.+)")
_INSIDE_GLOB_PARTS = 4  # parts of a glob that reaches inside a layer


def layer_and_part(stage: str) -> tuple[str, str] | None:
    """Returns (layer, part) of a stage such as `encoder.layers.3.mlp.up`; None if it is not a part of a layer.

    The layer of a decoding step's stage is named without the step.
    """
    match = _LAYER.fullmatch(step_and_stage(stage)[1])
    return (match["layer"], match["part"]) if match else None


def is_inside(stage: str) -> bool:
    """Returns whether a stage is a known part inside a layer, so that short globs do not take it.

    Parts that a family of another package names count as stages like any other.
    """
    layer_part = layer_and_part(stage)
    if layer_part is None or (layer_part[0].startswith("encoder.") and layer_part[1] in _UNFILTERED_PARTS):
        return False
    return layer_part[1] in PARTS or layer_part[1] in DECODER_PARTS


def reaches_inside(glob: str) -> bool:
    """Returns whether a glob reaches inside layers: it has at least four parts between dots."""
    return glob_of_stage(glob).count(".") + 1 >= _INSIDE_GLOB_PARTS


def only_inside(glob: str) -> bool:
    """Returns whether a glob is only for stages inside a layer, so that a pass without a match is a mistake."""
    parts = glob_of_stage(glob).split(".", 3)
    return len(parts) == _INSIDE_GLOB_PARTS and parts[1] == "layers" and parts[3] not in _UNFILTERED_PARTS


def place_inside(layer: str, part: str) -> int:
    """Returns the place of a part in the order of the computation of its layer; unknown parts come last."""
    parts = list(DECODER_PARTS if layer.startswith(("decoder.", "seaco_")) else PARTS)
    return parts.index(part) if part in parts else len(parts)


def no_such_part_message(glob: str, owner: str, absent: Mapping[str, str]) -> str:
    """Returns the sentence for a glob that matches no stage inside a layer.

    Args:
        glob: one that is `only_inside`.
        owner: the model and the runtime.
        absent: parts that the runtime does not show, with a sentence why.
    """
    stack, _, _, part = glob_of_stage(glob).split(".", 3)
    known_parts = (*PARTS, *DECODER_PARTS)
    reason = next((absent[each] for each in absent if fnmatchcase(each, part)), "")
    similar = (
        []
        if any(fnmatchcase(each, part) for each in known_parts)
        else get_close_matches(part, known_parts, 1, cutoff=0.7)
    )
    message = f"no stage inside the layers of {owner} matches {glob!r}"
    if reason:
        return f"{message}: {reason}"
    if part.startswith("cache."):
        return f"{message}: only decoding steps have a cache; set steps, too"
    guess = f"; did you mean {similar[0]}?" if similar else ""
    return f"{message}{guess}; {stack}.layers.0.* shows what a layer has"


def check_weights(stage: str, heads: int, queries: int, keys: int) -> None:
    """Raises `BadInput` if the attention weights of a layer are too many to show."""
    count = heads * queries * keys
    if count > MAX_WEIGHTS:
        raise BadInput(
            f"{stage} would hold {count:,} numbers ({heads} heads, {queries} by {keys} rows); expected at most "
            f"{MAX_WEIGHTS:,}: trace a shorter recording or text, or leave the weights out"
        )
