"""The steps in front of stages whose computation the reference shows only as a whole, with the checkpoint's parameters.

Each recipe names the stage that its steps begin with. The networks are FireRedASR's subsampling and Conformer, the
adaptors, Paraformer's weights of frames, and the feed-forward part of SAN-M.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from workbench.compare.guesses import chains
from workbench.compare.guesses.attended import Attention, Distances, all_keys
from workbench.compare.guesses.chains import Step, activation, chain, convolution, linear, norm, with_residual
from workbench.compare.guesses.guess import Linear
from workbench.trace.inside import layer_and_part

Layers = Mapping[str, Linear]
Stages = Callable[[str], np.ndarray | None]
"""Returns another stage of the same side, as a table; None without it."""
_PADDING = 6  # frames of zeros that complete the context of the last frame of FireRedASR's subsampling
EPSILONS = (1e-5, 1e-12)  # of the norms of these networks
_HEADS = (4, 8, 16, 2, 1, 20)  # numbers of heads that are tried
_MAX_REACH = 40  # frames that a convolution over time sees ahead
ALL = 1 << 30  # a context of all rows
_ENCODED, _TOKENS = "encoder.output", "predictor.embeddings"
_PROJECTIONS = ("attention.query", "attention.key", "attention.value")
_HALF = ("ffn1.norm", "ffn1.up", "ffn1.down", "input_norm.query", "input_norm.key", "input_norm.value")
_POSITIONED = (*_PROJECTIONS, "attention.output", "attention.positions", "attention.content_bias",
               "attention.position_bias")  # fmt: skip
_CONVOLUTION = ("conv.norm", "conv.up", "conv.depthwise", "conv.depthwise_norm", "convolution")
_SECOND_HALF = ("ffn2.norm", "ffn2.up", "ffn2.down")
_MLP = ("norm1", "norm2", "mlp.up", "mlp.down")
_BLOCK = (*_MLP, *_PROJECTIONS, "attention.output")
_CROSS = ("query", "key", "value", "output")
_DECODER = ("norm1", "norm2", "norm3", "mlp.up", "mlp.down", "mlp.hidden_norm", "fsmn",
            *(f"cross_attention.{each}" for each in _CROSS))  # fmt: skip


class Recipe(NamedTuple):
    """How a stage is computed."""

    begins_with: str  # the stage that enters
    layers: tuple[str, ...]  # the names of the parameters that it needs
    steps: Callable[[Layers, float, Stages], Step]  # takes them, the epsilon of its norms, and the other stages
    rate: int = 1  # rows that enter for each row of the stage
    context: int = 0  # further rows that enter for the last one
    added: tuple[str, ...] = ()  # stages that are added to what enters, before the first step
    others: int = 0  # rows at the end of the stage that are computed in another way
    reads: tuple[str, ...] = ()  # other stages that it needs


def recipes(stage: str, before: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Recipe]:
    """Yields the recipes that a stage may have.

    Args:
        before: the stages before it, the nearest one first.
        shapes: those of all stages of the reference.
    """
    rows = shapes[stage][0]
    layer, part = layer_and_part(stage) or (stage, "")
    entering = next((each for each in before if not each.startswith(f"{layer}.")), "")
    if stage == "encoder.input":
        names = ("encoder.subsampling.0", "encoder.subsampling.1", "encoder.subsampling.output")
        yield Recipe("frontend.features", names, _subsampling, 4, _PADDING)
    elif stage in ("adaptor.output", "adaptor.layers.0") and entering == "encoder.output" and rows:
        frames = shapes[entering][0]
        for rate in dict.fromkeys(
            (max(frames // rows, 1), -(-frames // rows))
        ):  # a rest of frames is left out or padded
            yield from _adaptors(stage, rate)
    elif stage == "predictor.alphas":
        names = ("predictor.convolution", "predictor.output")
        yield Recipe(entering, names, _frame_weights, context=1, others=1)
    elif part == "fsmn" and layer.startswith("encoder."):
        names = named(layer, "norm1", "norm2", *_PROJECTIONS, "fsmn")
        yield Recipe(entering, names, partial(_memory, layer=layer), context=_MAX_REACH)
    elif part == "attention" and layer.startswith("encoder."):
        names = named(layer, *_HALF, *_POSITIONED)
        yield Recipe(entering, names, partial(_conformer_attention, layer=layer), context=ALL)
    elif part == "convolution":
        added, names = named(layer, "ffn1.residual"), named(layer, *_CONVOLUTION)
        yield Recipe(f"{layer}.attention", names, partial(_convolution, layer=layer), context=_MAX_REACH, added=added)
    elif f"{stage}.convolution" in before:
        added, names = named(stage, "attention.residual"), named(stage, *_SECOND_HALF, "norm")
        yield Recipe(f"{stage}.convolution", names, partial(_conformer_end, layer=stage), added=added)
    elif f"{stage}.fsmn" in before and f"{stage}.attention" in before:
        added = (f"{stage}.fsmn", *([entering] if shapes.get(entering) == shapes[stage] else []))
        yield Recipe(f"{stage}.attention", named(stage, *_MLP), partial(_sanm_end, layer=stage), added=added)
    elif part == "" and stage.startswith("decoder.layers.") and _ENCODED in before:
        last_layer = next((each for each in before if each.startswith("encoder.layers.") and each.count(".") == 2), "")
        others = (last_layer, _TOKENS)
        for heads, is_causal in product(_HEADS, (True, False)):
            steps = partial(_decoder_layer, layer=stage, heads=heads, is_causal=is_causal, others=others)
            yield Recipe(entering, named(stage, *_DECODER), steps, context=ALL, reads=(_ENCODED,))


def named(layer: str, *parts: str) -> tuple[str, ...]:
    """Returns the names of parts of a layer."""
    return tuple(f"{layer}.{each}" for each in parts)


def _subsampling(layers: Layers, _: float, __: Stages) -> Step:
    def padded(before: int) -> chains.Function:
        return lambda x: np.pad(x, ((before, _PADDING - before), (0, 0)))[..., None]

    def joined(x: np.ndarray) -> np.ndarray:
        return x.swapaxes(1, 2).reshape(len(x), -1)

    relu = [activation(f"the activation behind the {each} convolution", "ReLU") for each in ("first", "second")]
    return chain(
        "the subsampling",
        Step("padding", padded(0), [
            (f"its {_PADDING} frames of padding stand {where}, where the reference's stand behind", padded(before))
            for where, before in (("at both ends", _PADDING // 2), ("in front", _PADDING))
        ]),
        convolution("the first convolution", layers["encoder.subsampling.0"], 2),
        relu[0],
        convolution("the second convolution", layers["encoder.subsampling.1"], 2),
        relu[1],
        Step("joining", joined, [
            ("its channels are joined frequency by frequency, where the reference's are joined channel by channel "
             "(channels × frequencies)", lambda x: x.reshape(len(x), -1)),
        ]),
        linear("the projection behind the convolutions", layers["encoder.subsampling.output"]),
    )  # fmt: skip


def _adaptors(stage: str, rate: int) -> Iterator[Recipe]:
    names = ("adaptor.linear1", "adaptor.linear2")
    if stage == "adaptor.output":
        yield Recipe("encoder.output", names, partial(_adaptor, rate=rate), rate)
        return
    for heads in _HEADS:
        steps = partial(_adaptor, rate=rate, layer=stage, heads=heads)
        yield Recipe("encoder.output", (*names, *named(stage, *_BLOCK)), steps, rate, ALL)


def _adaptor(layers: Layers, epsilon: float, _: Stages, rate: int, layer: str = "", heads: int = 0) -> Step:
    def stacked(order: Callable[[np.ndarray], np.ndarray], first: int = 0) -> chains.Function:
        def stack(x: np.ndarray) -> np.ndarray:
            stacks = -(-len(x) // rate) if layer else len(x) // rate  # Fun-ASR-Nano fills the last one with zeros
            rows = np.pad(x, ((first, rate), (0, 0)))[: stacks * rate]
            return order(rows.reshape(stacks, rate, -1)).reshape(stacks, -1)

        return stack

    frames: list[chains.Wrong] = []
    if rate > 1:
        frames = [
            (f"the {rate} frames of a stack are joined channel by channel, where the reference's stand frame by frame",
             stacked(lambda x: x.swapaxes(1, 2))),
            ("the frames of a stack stand in reverse order", stacked(lambda x: x[:, ::-1])),
            ("its stacks begin one frame early, with a frame of zeros", stacked(lambda x: x, 1)),
        ]  # fmt: skip
    return chain(
        "the adaptor",
        Step("stacking", stacked(lambda x: x), frames),
        linear("the first projection", layers["adaptor.linear1"]),
        activation("the activation", "ReLU"),
        linear("the second projection", layers["adaptor.linear2"]),
        *([_block(layers, epsilon, layer, heads)] if layer else []),
    )


def _block(layers: Layers, epsilon: float, layer: str, heads: int) -> Step:
    attention = chain(
        "attention",
        norm("the norm in front of attention", layers[f"{layer}.norm1"], epsilon),
        _attention("attention", layers, f"{layer}.attention", heads),
    )
    return chain("the block", with_residual(attention), with_residual(_mlp(layers, epsilon, layer)))


def _frame_weights(layers: Layers, _: float, __: Stages) -> Step:
    taps = layers["predictor.convolution"].weight.shape[2]
    local = convolution("the convolution", layers["predictor.convolution"], 1, (taps // 2, taps - 1 - taps // 2))
    relu = activation("the activation behind the convolution", "ReLU", may_swap=False)
    wrong = [
        ("the frames are added to their convolution before the activation, as in FunASR's C++ runtime",
         lambda x: relu(local(x) + x)),
        ("the frames are added to their activated convolution", lambda x: relu(local(x)) + x),
        ("the convolution is left out", relu.right),
    ]  # fmt: skip
    both = chain("the convolution", local, relu)
    return chain(
        "the predictor",
        Step(both.name, both.right, [*both.wrong, *wrong]),
        linear("the projection to weights", layers["predictor.output"], is_vector=True),
        activation("the activation of the weights", "sigmoid", ("ReLU", "softplus", "tanh"), may_swap=False),
    )


def _convolution(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    first_norm, up, kernel, second_norm, down = (layers[each] for each in named(layer, *_CONVOLUTION))
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


def _conformer_attention(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    names = named(layer, "attention.positions", "attention.content_bias", "attention.position_bias")
    distances = Distances(*(np.asarray(layers[each].weight, np.float64) for each in names))
    heads = len(distances.content_bias)

    def attended(x: np.ndarray) -> np.ndarray:
        parts = []
        for part in ("query", "key", "value"):
            normed = norm(part, layers[f"{layer}.input_norm.{part}"], epsilon)(x)
            parts.append(linear(part, layers[f"{layer}.attention.{part}"])(normed).reshape(len(x), heads, -1))
        attention = Attention(*parts, parts[0].shape[2] ** -0.5, all_keys, distances=distances)
        return linear("output", layers[f"{layer}.attention.output"])(attention.context(np.arange(len(x))))

    first_half = with_residual(_half_step(layers, f"{layer}.ffn1", "the first feed-forward part", epsilon), 0.5)
    return chain("the beginning of the layer", first_half, Step("the attention", attended))


def _conformer_end(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    return chain(
        "the end of the layer",
        with_residual(_half_step(layers, f"{layer}.ffn2", "the second feed-forward part", epsilon), 0.5),
        norm("the norm at the end of the layer", layers[f"{layer}.norm"], epsilon),
    )


def _half_step(layers: Layers, part: str, name: str, epsilon: float) -> Step:
    return chain(
        name,
        norm(f"the norm in front of {name}", layers[f"{part}.norm"], epsilon),
        linear(f"the first projection of {name}", layers[f"{part}.up"]),
        activation(f"the activation of {name}", "SiLU"),
        linear(f"the second projection of {name}", layers[f"{part}.down"]),
    )


def _mlp(layers: Layers, epsilon: float, layer: str, others: Sequence[tuple[str, Linear]] = ()) -> Step:
    """Returns the feed-forward part of SAN-M and of an adaptor's block."""
    return chain(
        "the feed-forward part",
        norm("the norm in front of the feed-forward part", layers[f"{layer}.norm2"], epsilon, others),
        linear("the first projection of the feed-forward part", layers[f"{layer}.mlp.up"]),
        activation("the activation of the feed-forward part", "ReLU"),
        linear("the second projection of the feed-forward part", layers[f"{layer}.mlp.down"]),
    )


def _sanm_end(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    return with_residual(_mlp(layers, epsilon, layer, [("the layer's first norm", layers[f"{layer}.norm1"])]))


def _memory(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    parts = [layers[f"{layer}.{each}"] for each in _PROJECTIONS]
    second_norm = "the layer's second norm", layers[f"{layer}.norm2"]
    values = linear("the projection of values", parts[2])
    joined = Linear(*(np.concatenate(each) for each in zip(*parts)))
    fused, count = linear("the fused projection", joined), len(joined.weight) // 3
    wrong: list[chains.Wrong] = [
        ("it is the memory of the queries, where the reference's is of the values", linear("", parts[0]).right),
        ("it is the memory of the keys, where the reference's is of the values", linear("", parts[1]).right),
        *((f"its values are those of a fused projection that is laid out by {heads} heads",
           lambda x, heads=heads: fused(x).reshape(len(x), heads, 3, -1)[:, :, 2].reshape(len(x), count))
          for heads in _HEADS if count % heads == 0),
    ]  # fmt: skip
    return chain(
        "the memory",
        norm("the norm in front of attention and memory", layers[f"{layer}.norm1"], epsilon, [second_norm]),
        Step(values.name, values.right, [*values.wrong, *wrong]),
        chains.depthwise("the memory", np.asarray(layers[f"{layer}.fsmn"].weight, np.float64), with_input=True),
    )


def _attention(name: str, layers: Layers, part: str, heads: int, memory: np.ndarray | None = None,
               others: Sequence[tuple[str, np.ndarray]] = ()) -> Step:  # fmt: skip
    """Returns an attention with its projections, to its own rows or to `memory`; `others` are other memories."""
    query, key, value, output = (layers[f"{part}.{each}"] for each in ("query", "key", "value", "output"))
    both = linear("", Linear(*(np.concatenate(each) for each in zip(key, value))))

    def of(layout: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], kept: np.ndarray | None = memory,
           scale: float = 1.0) -> chains.Function:  # fmt: skip
        def computed(x: np.ndarray) -> np.ndarray:
            keys, values = layout(both(x if kept is None else kept))
            parts = [each.reshape(len(each), heads, -1) for each in (linear("", query)(x), keys, values)]
            attention = Attention(*parts, scale * parts[0].shape[2] ** -0.5, all_keys)
            return linear("", output)(attention.context(np.arange(len(x))))

        return computed

    def halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        one, other = np.split(x, 2, axis=1)
        return one, other

    def by_head(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        split = x.reshape(len(x), heads, 2, -1)
        return split[:, :, 0], split[:, :, 1]

    return Step(name, of(halves), [
        (f"the keys and values of {name} are exchanged", of(lambda x: halves(x)[::-1])),
        (f"the keys and values of {name} stand in turn, where the reference has two halves",
         of(lambda x: (x[:, ::2], x[:, 1::2]))),
        (f"the keys and values of {name} stand by head, where the reference has two halves", of(by_head)),
        (f"the scores of {name} are not divided by the root of the head's width",
         of(halves, scale=(len(query.weight) / heads) ** 0.5)),
        *((f"{name} reads {other}, where the reference's reads {_ENCODED}", of(halves, kept))
          for other, kept in others),
    ])  # fmt: skip


def _decoder_layer(
    layers: Layers, epsilon: float, stages: Stages, layer: str, heads: int, is_causal: bool, others: Sequence[str]
) -> Step:
    norms = [layers[f"{layer}.norm{number}"] for number in (1, 2, 3)]
    kernel = np.asarray(layers[f"{layer}.fsmn"].weight, np.float64)
    if is_causal:
        kernel = np.pad(kernel, ((0, 0), (0, kernel.shape[1] - 1)))
    feed_forward = chain(
        "the feed-forward part",
        norm("the norm in front of the feed-forward part", norms[0], epsilon),
        linear("the first projection of the feed-forward part", layers[f"{layer}.mlp.up"]),
        activation("the activation of the feed-forward part", "ReLU"),
        norm("the norm over the hidden units", layers[f"{layer}.mlp.hidden_norm"], epsilon)._replace(may_swap=False),
        linear("the second projection of the feed-forward part", layers[f"{layer}.mlp.down"]),
    )
    memory = chain(
        "the memory",
        norm("the norm in front of the memory", norms[1], epsilon, [("that in front of attention", norms[2])]),
        chains.depthwise("the memory", kernel, with_input=True),
    )
    begin = with_residual(chain("feed-forward part and memory", feed_forward, memory))
    wrong: list[chains.Wrong] = [
        ("the residual stream is added behind the feed-forward part and again behind the memory, where the reference "
         "adds it once, behind both", lambda x: with_residual(memory)(with_residual(feed_forward)(x))),
        ("the output of the feed-forward part is added behind the memory, where the reference adds the layer's input",
         lambda x: with_residual(memory)(feed_forward(x))),
    ]  # fmt: skip
    memories = [(name, kept) for name in others if (kept := stages(name)) is not None]
    attention = _attention("cross attention", layers, f"{layer}.cross_attention", heads, stages(_ENCODED), memories)
    return chain(
        "the layer",
        Step(begin.name, begin.right, [*begin.wrong, *wrong]),
        with_residual(chain(
            "cross attention",
            norm("the norm in front of cross attention", norms[2], epsilon),
            attention,
        )),
    )  # fmt: skip
