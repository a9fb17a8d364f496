"""The options of views: what a user may choose besides the recording, the model and the view."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.core.options import option

STACKS = ("auto", "encoder", "decoder", "cross", "tower", "llm")
ATTENTION = ("heads", "mean", "rollout", "token")
MAX_LAYERS = 10_000


@dataclass(frozen=True)
class ViewOptions:
    """The options of this project's views; each view names the options that it uses."""

    layer: int | None = option(None, "a layer, counted from 0 (default: the last)", minimum=0, maximum=MAX_LAYERS)
    stack: str = option(
        "auto",
        "the stack of layers; cross is the attention from a decoder's tokens to the sound (auto: the model's main one)",
        STACKS,
    )
    head: int | None = option(None, "one head of attention, counted from 0 (default: all)", minimum=0, maximum=1024)
    attention: str = option(
        "heads",
        "what to draw: each head, their mean, rollout over all layers, or from one token back to the sound",
        ATTENTION,
    )
    token: int | None = option(
        None, "a token of the output, counted from 0 (default: the first that is not a tag)", minimum=0, maximum=1 << 20
    )
    count: int = option(3, "number of tokens in a cell, or of nearest tokens in a row", minimum=1, maximum=10)
    types: tuple[str, ...] = option(
        (), "types of weights in a GGUF file to compare (default: f16, q8_0 and q4_0, or those that the model has)"
    )
