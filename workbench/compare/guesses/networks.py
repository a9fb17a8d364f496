"""The steps of networks, with the checkpoint's parameters: FireRedASR's subsampling, adaptors, SAN-M, and Paraformer's
predictor and decoder.

Each function takes the parameters by name, the epsilon of the norms, and the other stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from workbench.compare.guesses import chains
from workbench.compare.guesses.attended import Attention, Mask, all_keys, earlier_keys
from workbench.compare.guesses.chains import (
    Step,
    Wrong,
    activation,
    chain,
    convolution,
    halves,
    linear,
    norm,
    pre_norm,
    with_residual,
)
from workbench.compare.guesses.guess import Linear

Layers = Mapping[str, Linear]
Stages = Callable[[str], np.ndarray | None]
"""Returns another stage of the same side, as a table; None without it."""
PADDING = 6  # frames of zeros that complete the context of the last frame of FireRedASR's subsampling
EPSILONS = (1e-5, 1e-12)  # of the norms of these networks
HEADS = (4, 8, 16, 2, 1, 20)  # numbers of heads that are tried
ENCODED, TOKENS = "encoder.output", "predictor.embeddings"
PROJECTIONS = ("attention.query", "attention.key", "attention.value")


def subsampling(layers: Layers, _: float, __: Stages) -> Step:
    """Returns FireRedASR's subsampling of features [n, mels]."""

    def padded(before: int) -> chains.Function:
        return lambda x: np.pad(x, ((before, PADDING - before), (0, 0)))[..., None]

    def joined(x: np.ndarray) -> np.ndarray:
        return x.swapaxes(1, 2).reshape(len(x), -1)

    relu = [activation(f"the activation behind the {each} convolution", "ReLU") for each in ("first", "second")]
    return chain(
        "the subsampling",
        Step(
            "padding",
            padded(0),
            [
                Wrong(
                    f"its {PADDING} frames of padding stand {where}, where the reference's stand behind",
                    padded(before),
                )
                for where, before in (("at both ends", PADDING // 2), ("in front", PADDING))
            ],
        ),
        convolution("the first convolution", layers["encoder.subsampling.0"], 2),
        relu[0],
        convolution("the second convolution", layers["encoder.subsampling.1"], 2),
        relu[1],
        Step(
            "joining",
            joined,
            [
                Wrong(
                    "its channels are joined frequency by frequency, where the reference's are joined channel by "
                    "channel (channels × frequencies)",
                    lambda x: x.reshape(len(x), -1),
                ),
            ],
        ),
        linear("the projection behind the convolutions", layers["encoder.subsampling.output"]),
    )


def adaptor(layers: Layers, epsilon: float, _: Stages, rate: int, layer: str = "", heads: int = 0) -> Step:
    """Returns the adaptor of FireRedASR, or with a `layer` that of Fun-ASR-Nano with its first block."""

    def stacked(order: Callable[[np.ndarray], np.ndarray], first: int = 0) -> chains.Function:
        def stack(x: np.ndarray) -> np.ndarray:
            stacks = -(-len(x) // rate) if layer else len(x) // rate  # Fun-ASR-Nano fills the last one with zeros
            rows = np.pad(x, ((first, rate), (0, 0)))[: stacks * rate]
            return order(rows.reshape(stacks, rate, -1)).reshape(stacks, -1)

        return stack

    frames: list[Wrong] = []
    if rate > 1:
        frames = [
            Wrong(
                f"the {rate} frames of a stack are joined by channel, where the reference's stand frame by frame",
                stacked(lambda x: x.swapaxes(1, 2)),
            ),
            Wrong("the frames of a stack stand in reverse order", stacked(lambda x: x[:, ::-1])),
            Wrong("its stacks begin one frame early, with a frame of zeros", stacked(lambda x: x, 1)),
        ]
    return chain(
        "the adaptor",
        Step("stacking", stacked(lambda x: x), frames),
        linear("the first projection", layers["adaptor.linear1"]),
        activation("the activation", "ReLU"),
        linear("the second projection", layers["adaptor.linear2"]),
        *([_block(layers, epsilon, layer, heads)] if layer else []),
    )


def _block(layers: Layers, epsilon: float, layer: str, heads: int) -> Step:
    attention = pre_norm(
        "attention",
        norm("the norm in front of attention", layers[f"{layer}.norm1"], epsilon),
        _attention("attention", layers, f"{layer}.attention", heads),
    )
    return chain("the block", attention, _mlp(layers, epsilon, layer))


def frame_weights(layers: Layers, _: float, __: Stages) -> Step:
    """Returns the weights [n] that Paraformer's predictor gives frames [n, width]."""
    taps = layers["predictor.convolution"].weight.shape[2]
    local = convolution("the convolution", layers["predictor.convolution"], 1, (taps // 2, taps - 1 - taps // 2))
    relu = activation("the activation behind the convolution", "ReLU", may_swap=False)
    wrong = [
        Wrong(
            "the frames are added to their convolution before the activation, as in FunASR's C++ runtime",
            lambda x: relu(local(x) + x),
        ),
        Wrong("the frames are added to their activated convolution", lambda x: relu(local(x)) + x),
        Wrong("the convolution is left out", relu.right),
    ]
    both = chain("the convolution", local, relu)
    return chain(
        "the predictor",
        Step(both.name, both.right, [*both.wrong, *wrong]),
        linear("the projection to weights", layers["predictor.output"], is_vector=True),
        activation("the activation of the weights", "sigmoid", ("ReLU", "softplus", "tanh"), may_swap=False),
    )


def _mlp(layers: Layers, epsilon: float, layer: str, others: Sequence[tuple[str, Linear]] = ()) -> Step:
    """Returns the feed-forward part of SAN-M and of an adaptor's block, with its residual."""
    first_norm, up, down = (layers[f"{layer}.{each}"] for each in ("norm2", "mlp.up", "mlp.down"))
    return feed_forward("the feed-forward part", first_norm, up, down, epsilon, "ReLU", others, times=1.0)


def feed_forward(
    name: str,
    first_norm: Linear,
    up: Linear,
    down: Linear,
    epsilon: float,
    kind: str,
    others: Sequence[tuple[str, Linear]] = (),
    hidden_norm: Linear | None = None,
    times: float | None = None,
) -> Step:
    """Returns a feed-forward part.

    Args:
        kind: of its activation, a key of `ACTIVATIONS`.
        others: norms that a port may take for the first one.
        hidden_norm: of a norm over the hidden units, if there is one.
        times: how much of the part is added to its input; None without a residual.
    """
    first = norm(f"the norm in front of {name}", first_norm, epsilon, others)
    rest = (
        linear(f"the first projection of {name}", up),
        activation(f"the activation of {name}", kind),
        *([norm("the norm over the hidden units", hidden_norm, epsilon)] if hidden_norm else []),
        linear(f"the second projection of {name}", down),
    )
    return chain(name, first, *rest) if times is None else pre_norm(name, first, *rest, times=times)


def sanm_end(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    """Returns the feed-forward part of a SAN-M layer, with its residual."""
    return _mlp(layers, epsilon, layer, [("the layer's first norm", layers[f"{layer}.norm1"])])


def sanm_attention(layers: Layers, _: float, stages: Stages, layer: str) -> Step:
    """Returns the attention of a SAN-M layer, which does not need the memory that enters here."""
    attention, output = stages(f"{layer}.attention"), layers[f"{layer}.attention.output"]
    assert attention is not None
    return Step(
        "the attention",
        lambda memory: attention[: len(memory)],
        [
            Wrong(
                "the memory is added in front of the output projection, where the reference adds it behind",
                lambda memory: attention[: len(memory)] + output._replace(bias=None)(memory),
            )
        ],
    )


def memory_block(layers: Layers, epsilon: float, _: Stages, layer: str) -> Step:
    """Returns the FSMN memory of a SAN-M layer from the layer's input."""
    parts = [layers[f"{layer}.{each}"] for each in PROJECTIONS]
    second_norm = "the layer's second norm", layers[f"{layer}.norm2"]
    values = linear("the projection of values", parts[2])
    joined = _joined(*parts)
    fused, count = linear("the fused projection", joined), len(joined.weight) // 3

    def by_head(x: np.ndarray, heads: int) -> np.ndarray:
        return np.asarray(fused(x).reshape(len(x), heads, 3, -1)[:, :, 2].reshape(len(x), count))

    wrong: list[Wrong] = [
        Wrong("it is the memory of the queries, where the reference's is of the values", linear("", parts[0]).right),
        Wrong("it is the memory of the keys, where the reference's is of the values", linear("", parts[1]).right),
        *(
            Wrong(
                f"its values are those of a fused projection that is laid out by {heads} heads",
                partial(by_head, heads=heads),
            )
            for heads in HEADS
            if count % heads == 0
        ),
    ]
    return chain(
        "the memory",
        norm("the norm in front of attention and memory", layers[f"{layer}.norm1"], epsilon, [second_norm]),
        Step(values.name, values.right, [*values.wrong, *wrong]),
        chains.depthwise("the memory", np.asarray(layers[f"{layer}.fsmn"].weight, np.float64), with_input=True),
    )


def _joined(*layers: Linear) -> Linear:
    """Returns linear layers as one fused layer, the outputs of the first one in front."""
    biases = [np.zeros(len(each.weight)) if each.bias is None else each.bias for each in layers]
    return Linear(np.concatenate([each.weight for each in layers]), np.concatenate(biases))


def _attention(
    name: str,
    layers: Layers,
    part: str,
    heads: int,
    memory: np.ndarray | None = None,
    others: Sequence[tuple[str, np.ndarray]] = (),
) -> Step:
    """Returns an attention with its projections, to its own rows or to `memory`; `others` are other memories."""
    query, key, value, output = (layers[f"{part}.{each}"] for each in ("query", "key", "value", "output"))
    both = linear("", _joined(key, value))

    def of(
        layout: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
        source: np.ndarray | None = memory,
        scale: float = 1.0,
        mask: Mask = all_keys,
        count: int = heads,
    ) -> chains.Function:
        def computed(x: np.ndarray) -> np.ndarray:
            keys, values = layout(both(x if source is None else source))
            q, k, v = (each.reshape(len(each), count, -1) for each in (linear("", query)(x), keys, values))
            attention = Attention(q, k, v, scale * q.shape[2] ** -0.5, mask)
            return linear("", output)(attention.context(np.arange(len(x))))

        return computed

    def by_head(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        split = x.reshape(len(x), heads, 2, -1)
        return split[:, :, 0], split[:, :, 1]

    return Step(
        name,
        of(halves),
        [
            Wrong(f"the keys and values of {name} are exchanged", of(lambda x: halves(x)[::-1])),
            Wrong(
                f"the keys and values of {name} stand in turn, where the reference has two halves",
                of(lambda x: (x[:, ::2], x[:, 1::2])),
            ),
            Wrong(f"the keys and values of {name} stand by head, where the reference has two halves", of(by_head)),
            Wrong(
                f"the scores of {name} are not divided by the root of the head's width",
                of(halves, scale=(len(query.weight) / heads) ** 0.5),
            ),
            Wrong(f"{name} sees no later rows, other than the reference's", of(halves, mask=earlier_keys)),
            *(
                Wrong(f"{name} has {each} heads, where the reference's has {heads}", of(halves, count=each))
                for each in HEADS
                if each != heads
            ),
            *(
                Wrong(f"{name} reads {other}, where the reference's reads {ENCODED}", of(halves, source))
                for other, source in others
            ),
        ],
    )


def decoder_layer(
    layers: Layers, epsilon: float, stages: Stages, layer: str, heads: int, is_causal: bool, others: Sequence[str]
) -> Step:
    """Returns a layer of Paraformer's decoder.

    Args:
        heads: of the cross attention.
        is_causal: whether the memory sees earlier tokens only.
        others: stages that a port may take as the memory of the cross attention.
    """
    norms = [layers[f"{layer}.norm{number}"] for number in (1, 2, 3)]
    kernel = np.asarray(layers[f"{layer}.fsmn"].weight, np.float64)
    if is_causal:
        kernel = np.pad(kernel, ((0, 0), (0, kernel.shape[1] - 1)))
    first = feed_forward(
        "the feed-forward part",
        norms[0],
        layers[f"{layer}.mlp.up"],
        layers[f"{layer}.mlp.down"],
        epsilon,
        "ReLU",
        hidden_norm=layers[f"{layer}.mlp.hidden_norm"],
    )
    memory = chain(
        "the memory",
        norm("the norm in front of the memory", norms[1], epsilon, [("that in front of attention", norms[2])]),
        chains.depthwise("the memory", kernel, with_input=True),
    )
    begin = with_residual(chain("feed-forward part and memory", first, memory))
    wrong: list[Wrong] = [
        Wrong(
            "the residual stream is added behind the feed-forward part and again behind the memory, where the "
            "reference adds it once, behind both",
            lambda x: with_residual(memory)(with_residual(first)(x)),
        ),
        Wrong(
            "the output of the feed-forward part is added behind the memory, not the layer's input",
            lambda x: with_residual(memory)(first(x)),
        ),
    ]
    memories = [(name, rows) for name in others if (rows := stages(name)) is not None]
    attention = _attention("cross attention", layers, f"{layer}.cross_attention", heads, stages(ENCODED), memories)
    return chain(
        "the layer",
        Step(begin.name, begin.right, [*begin.wrong, *wrong]),
        pre_norm("cross attention", norm("the norm in front of cross attention", norms[2], epsilon), attention),
    )
