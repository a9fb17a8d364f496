"""What the builder of a view returns: the layers of a picture, and what to say about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.plots.layers import Axis, Layer
from workbench.session.values import Token

SECONDS = Axis("seconds", "seconds")


@dataclass(frozen=True, eq=False)
class ViewContent:
    """The part of a picture that depends on its view."""

    title: str
    layers: tuple[Layer, ...]
    tokens: tuple[Token, ...] = ()
    notes: tuple[str, ...] = ()


def token_spans(tokens: Sequence[Token], name: str = "tokens", title: str = "tokens", over: bool = False) -> Layer:
    """Returns the tokens that have times as spans in seconds."""
    tokens_with_times = [token for token in tokens if token.start is not None and token.end is not None]
    values = np.array([(token.start, token.end) for token in tokens_with_times], dtype=np.float64).reshape(-1, 2)
    return Layer(
        name,
        "spans",
        title,
        values,
        SECONDS,
        labels=tuple(token.text.strip() for token in tokens_with_times),
        over=over,
    )
