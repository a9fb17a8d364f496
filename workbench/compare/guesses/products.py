"""Guesses at a linear layer without its weights: another weight beside the right bias, one wrong column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, table
from workbench.compare.guesses.orders import about_channels, channel_order

PROJECTED = ("query", "key", "value")
PRODUCTS = (*PROJECTED, "output", "gate", "up", "down", "logits")
"""The last words of stages that are a product with a weight, plus a bias."""
_INPUTS = {
    **{f"attention.{name}": (f"input_norm.{name}", "input_norm") for name in PROJECTED},
    "attention.output": ("attention.context",),
    "cross_attention.query": ("input_norm",),
    "cross_attention.output": ("cross_attention.context",),
    **{f"{block}.up": (f"{block}_norm", f"{block}.norm") for block in ("mlp", "ffn1", "ffn2")},
    "mlp.gate": ("mlp_norm",),
    **{f"{block}.down": (f"{block}.hidden_norm", f"{block}.activation") for block in ("mlp", "ffn1", "ffn2")},
    "conv.up": ("conv.norm",),
}  # fmt: skip
"""What enters the linear layer behind a stage."""
_ENTERS_LOGITS = ("llm.norm", "decoder.output", "encoder.output")
_MAX_SHOWING = 64  # channels of a stage that show which column differs
_MIN_ROWS = 12  # which show a column, or a constant for each channel


def input_of(scene: Scene) -> tuple[str, np.ndarray, np.ndarray] | None:
    """Returns what enters the linear layer of a stage: its name, and both sides [rows, channels]; None if unknown."""
    names = [each for each in _ENTERS_LOGITS if scene.stage == "logits"]
    for part, inputs in _INPUTS.items():
        if scene.stage.endswith(f".{part}"):
            names = [f"{scene.stage.removesuffix(part)}{each}" for each in inputs]
    name = next((each for each in names if each in scene.reference_stages), None)
    if name is None or len(scene.reference_stages[name]) != len(scene.reference):
        return None
    own = scene.reference_stages[name]
    reference, candidate = scene.entered(name) if name in scene.before else (own, own)
    return (name, table(reference), table(candidate)) if reference.shape == candidate.shape else None


def products(scene: Scene) -> Iterator[Guess]:
    """Yields products with another weight whose bias is the right one, and those with one wrong column."""
    if scene.part not in PRODUCTS or scene.reference.ndim < 2 or len(scene.reference) < _MIN_ROWS:
        return
    r, c = table(scene.reference), table(scene.candidate)
    if not (np.isfinite(r).all() and np.isfinite(c).all()):
        return
    yield from _unbiased(scene, r - r.mean(axis=0), c - c.mean(axis=0), c.mean(axis=0))
    yield from _one_column(scene, r, c)


def _unbiased(scene: Scene, r: np.ndarray, c: np.ndarray, constants: np.ndarray) -> Iterator[Guess]:
    """Yields guesses at stages without the mean of each channel, to which a bias belongs."""
    prefix = scene.stage.removesuffix(scene.part)
    for projection in PROJECTED:
        name = f"{prefix}{projection}"
        if scene.part not in PROJECTED or projection == scene.part or name not in scene.reference_stages:
            continue
        other = scene.reference_stages[name]
        if other.shape != scene.reference.shape:
            continue
        values = table(other)
        values = values - values.mean(axis=0) + constants
        words = f"it equals the reference's {name} but for a constant in each channel: its weight, and not its bias"
        yield Guess("other stage", words, lambda rows, x=values: x[rows])  # type: ignore[misc]
    centred = replace(scene, reference=r.reshape(scene.reference.shape), candidate=c.reshape(scene.reference.shape))
    if (order := channel_order(centred)) is not None:
        kind, words = about_channels(order, scene)
        values = r[:, order] + constants
        yield Guess(
            kind,
            f"{words}, but for a constant in each: rows of its weight, and not of its bias",
            lambda rows: values[rows],
        )


def _one_column(scene: Scene, r: np.ndarray, c: np.ndarray) -> Iterator[Guess]:
    """Yields a weight of which one column is another: the difference is that column times one channel of the input."""
    if (entering := input_of(scene)) is None:
        return
    name, reference_input, x = entering
    if not is_close(reference_input, x, scene.allowed * 10):
        return
    difference = c - r
    sizes = np.linalg.norm(x, axis=0)
    with np.errstate(all="ignore"):
        most = np.argsort(np.linalg.norm(difference, axis=0))[-_MAX_SHOWING:]
        shares = np.nan_to_num(np.square(x.T @ difference[:, most]).sum(axis=1) / np.square(sizes))
    channel = int(shares.argmax())
    column = x[:, channel] @ difference / max(float(np.square(sizes[channel])), 1e-300)

    def expected(rows: Rows) -> np.ndarray:
        return r[rows] + x[rows, channel, None] * column

    words = f"column {channel} of the {x.shape[1]} of its weight, which takes channel {channel} of {name}, is another"
    yield Guess("column", words, expected)
