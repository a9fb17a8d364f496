"""A small language model in NumPy with the stages inside its layers, each step of which a test may replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

HEADS, WIDTH, HEAD = 4, 32, 8
LAYERS = 3


def rms(x: np.ndarray, epsilon: float = 1e-6) -> np.ndarray:
    return np.asarray(x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + epsilon))


def silu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / (1 + np.exp(-x)))


def turned(x: np.ndarray, base: float = 1e6, first: int = 0, neighbours: bool = False) -> np.ndarray:
    """Rotary positions of [rows, heads, head width]."""
    half = x.shape[-1] // 2
    angles = (np.arange(len(x))[:, None] + first) * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    if neighbours:
        one, other = x[..., 0::2], x[..., 1::2]
        return np.stack([one * cos - other * sin, other * cos + one * sin], axis=-1).reshape(x.shape)
    one, other = x[..., :half], x[..., half:]
    return np.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)


def softmax(scores: np.ndarray) -> np.ndarray:
    found = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(found / found.sum(axis=-1, keepdims=True))


def attention_weights(q: np.ndarray, k: np.ndarray, scale: float = HEAD**-0.5, sees: int = 0) -> np.ndarray:
    """Weights [heads, queries, keys]; `sees` more keys than the causal mask shows."""
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    return softmax(np.where(np.tril(np.ones(scores.shape[1:], bool), sees), scores, -np.inf))


STEPS: Mapping[str, Callable[..., np.ndarray]] = {
    "input_norm": lambda x, weight: rms(x) * weight,
    "attention.query": lambda x, weight: (x @ weight).reshape(len(x), HEADS, HEAD),
    "attention.query_norm": lambda x, weight: rms(x) * weight,
    "attention.query_rope": turned,
    "attention.weights": attention_weights,
    "mlp_norm": lambda x, weight: rms(x) * weight,
    "mlp.activation": lambda gate, up: silu(gate) * up,
    "layer": lambda x, down: x + down,
    "llm.norm": lambda x, weight: rms(x) * weight,
}
"""The steps that a test may replace."""


def stages(
    seed: int = 0, rows: int = 20, at: int = 1, size: float = 1.0, noise: float = 0.0, **steps: Any
) -> dict[str, np.ndarray]:
    """Returns the stages in float32; with other steps in layer `at` and in the final norm.

    Args:
        size: root mean square of the embeddings.
        noise: relative rounding noise of every stage.
        steps: by name, with `__` for dots.
    """
    draw, other = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    named = {name.replace("__", "."): step for name, step in steps.items()}
    assert named.keys() <= STEPS.keys()
    found: dict[str, np.ndarray] = {}

    def keep(name: str, x: np.ndarray) -> np.ndarray:
        x = x * (1 + noise * other.standard_normal(x.shape))
        found[name] = x.astype(np.float32)
        return x

    x = keep("llm.embeddings", size * draw.standard_normal((rows, WIDTH)))
    for number in range(LAYERS):
        stage = f"llm.layers.{number}"
        run = {**STEPS, **(named if number == at else {})}
        matrices = {name: draw.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5 for name in "qkvo"}
        gate, up = (draw.standard_normal((WIDTH, 2 * WIDTH)) / WIDTH**0.5 for _ in range(2))
        down = draw.standard_normal((2 * WIDTH, WIDTH)) / WIDTH**0.5
        ones, heads = 1 + 0.2 * draw.standard_normal((2, WIDTH)), 1 + 0.2 * draw.standard_normal((2, HEAD))
        h = keep(f"{stage}.input_norm", run["input_norm"](x, ones[0]))
        q = keep(f"{stage}.attention.query", run["attention.query"](h, matrices["q"]))
        k = keep(f"{stage}.attention.key", (h @ matrices["k"]).reshape(rows, HEADS, HEAD))
        v = keep(f"{stage}.attention.value", (h @ matrices["v"]).reshape(rows, HEADS, HEAD))
        q = keep(f"{stage}.attention.query_norm", run["attention.query_norm"](q, heads[0]))
        k = keep(f"{stage}.attention.key_norm", rms(k) * heads[1])
        q = keep(f"{stage}.attention.query_rope", run["attention.query_rope"](q))
        k = keep(f"{stage}.attention.key_rope", turned(k))
        weights = keep(f"{stage}.attention.weights", run["attention.weights"](q, k))
        context = keep(f"{stage}.attention.context", np.einsum("hqk,khd->qhd", weights, v).reshape(rows, WIDTH))
        x = keep(f"{stage}.attention.residual", x + context @ matrices["o"])
        h = keep(f"{stage}.mlp_norm", run["mlp_norm"](x, ones[1]))
        wide = [keep(f"{stage}.mlp.{name}", h @ matrix) for name, matrix in (("gate", gate), ("up", up))]
        inner = keep(f"{stage}.mlp.activation", run["mlp.activation"](*wide))
        x = keep(stage, run["layer"](x, keep(f"{stage}.mlp.down", inner @ down)))
    x = keep("llm.norm", {**STEPS, **named}["llm.norm"](x, 1 + 0.2 * draw.standard_normal(WIDTH)))
    keep("logits", x @ draw.standard_normal((WIDTH, 50)))
    return found
