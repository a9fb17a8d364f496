"""The steps of a layer of FireRedASR's Conformer, with the checkpoint's parameters.

Each function takes the parameters by name, the epsilon of the norms, and the other stages.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from workbench.compare.guesses import chains
from workbench.compare.guesses.attended import Attention, all_keys
from workbench.compare.guesses.chains import Step, Wrong, activation, chain, linear, norm
from workbench.compare.guesses.networks import Layers, Stages, feed_forward
from workbench.compare.guesses.relative import distances_of

CONVOLUTION = ("conv.norm", "conv.up", "conv.depthwise", "conv.depthwise_norm", "convolution")


def convolution_part(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    """Returns a Conformer's convolution part of the residual stream, without its residual."""
    first_norm, up, kernel, second_norm, down = (layers[f"{layer}.{each}"] for each in CONVOLUTION)
    return chain(
        "the convolution part",
        norm("the norm in front of it", first_norm, epsilon),
        linear("the first pointwise convolution", up),
        chains.gate("the gate"),
        chains.depthwise("the convolution over time", np.asarray(kernel.weight, np.float64)),
        norm("the norm behind the convolution over time", second_norm, epsilon),
        activation("the activation behind it", "SiLU"),
        linear("the second pointwise convolution", down),
    )


def conformer_attention(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    """Returns a Conformer's first feed-forward part and attention, without the residual of the attention."""
    distances = distances_of(layers, layer)
    assert distances is not None
    heads = len(distances.content_bias)
    parts = {"query": "queries", "key": "keys", "value": "values"}

    def attended(x: np.ndarray, norm_of: str = "") -> np.ndarray:
        projected = []
        for part in parts:
            normed = norm(part, layers[f"{layer}.input_norm.{norm_of or part}"], epsilon)(x)
            projected.append(linear(part, layers[f"{layer}.attention.{part}"])(normed).reshape(len(x), heads, -1))
        q, k, v = projected
        attention = Attention(q, k, v, q.shape[2] ** -0.5, all_keys, distances=distances)
        return linear("output", layers[f"{layer}.attention.output"])(attention.context(np.arange(len(x))))

    one_norm = [
        Wrong(
            f"the norm of the {words} stands in front of queries, keys and values; the reference has one for each",
            partial(attended, norm_of=part),
        )
        for part, words in parts.items()
    ]
    return chain(
        "the beginning of the layer",
        _half_step(layers, epsilon, layer, "ffn1", "ffn2"),
        Step("the attention", attended, one_norm),
    )


def conformer_end(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    """Returns a Conformer's second feed-forward part and the norm behind it."""
    return chain(
        "the end of the layer",
        _half_step(layers, epsilon, layer, "ffn2", "ffn1"),
        norm("the norm at the end of the layer", layers[f"{layer}.norm"], epsilon),
    )


def _half_step(layers: Layers, epsilon: float, layer: str, part: str, other_part: str) -> Step:
    """Returns a feed-forward part of a Conformer, half of which is added to its input.

    Args:
        other_part: the one that a port may put in its place.
    """

    def built(part: str) -> Step:
        name = f"the {'first' if part == 'ffn1' else 'second'} feed-forward part"
        first_norm, up, down = (layers[f"{layer}.{part}.{each}"] for each in ("norm", "up", "down"))
        return feed_forward(name, first_norm, up, down, epsilon, "SiLU", times=0.5)

    right, other = built(part), built(other_part)
    exchanged = Wrong(f"{other.name} stands in the place of {right.name}", other.right)
    return right._replace(wrong=[*right.wrong, exchanged])
