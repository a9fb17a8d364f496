"""Guesses at a linear layer whose weight and bias are known: the product is computed again with one change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from workbench.compare.guesses.guess import Guess, Linear, Scene, in_order, is_close, table
from workbench.compare.guesses.orders import MATCHED_VALUES, MAX_MATCHED, changed_columns, matched, order_in
from workbench.compare.guesses.parameters import neighbours
from workbench.compare.guesses.products import PRODUCTS, input_of
from workbench.compare.guesses.rounding import rounded_to_bfloat16, rounded_to_float16
from workbench.trace.step_names import step_and_stage

_NEAREST = 24  # earlier stages that the layer may have taken as its input
_MAX_HEADS = 32  # whose order is looked for
_FEW_ROWS = 16  # on which that is done
_SAME_VALUES = 1e-2  # relative L2 of values that may be the same in another order
_BLOCK = 32  # values with one scale in q8_0


def linear(scene: Scene) -> Iterator[Guess]:
    """Yields products of another weight, bias, input or precision."""
    stage = step_and_stage(scene.stage)[1]
    if scene.layers is None or scene.part not in PRODUCTS or scene.reference.ndim < 2:
        return
    if (entering := input_of(scene)) is None:
        return
    name, reference_input, x = entering
    others = neighbours(stage)
    layers = scene.layers([stage, *others])
    shape = scene.reference[0].size, x.shape[1]
    if stage not in layers or layers[stage].weight.shape != shape:
        return
    weight = np.asarray(layers[stage].weight, np.float64)
    bias = _bias(layers[stage])
    rows = scene.sample
    if not is_close(reference_input[rows] @ weight.T + bias, scene.pair[0], scene.allowed):
        return  # the reference computes it in another way
    if is_close(x[rows] @ weight.T + bias, scene.pair[1], 2 * scene.allowed):
        return  # the error came in with the input

    def guess(words: str, weight: np.ndarray = weight, bias: np.ndarray = bias, x: np.ndarray = x) -> Guess:
        return Guess("linear layer", words, lambda rows: x[rows] @ weight.T + bias)

    out, width = shape
    transposed = (
        "its weight is transposed" if out == width else f"its weight is read as {width}×{out}, not {out}×{width}"
    )
    yield guess(transposed, weight.reshape(width, out).T)
    if bias.any():
        yield guess("its bias is left out", bias=0 * bias)
        yield guess("its bias is added twice", bias=2 * bias)
        yield guess("its bias is subtracted", bias=-bias)
    for each in others:
        if each in layers and layers[each].weight.shape == shape:
            other = np.asarray(layers[each].weight, np.float64)
            yield guess(f"its weight is that of {each}", other)
            if bias.any():
                yield guess(f"its weight and bias are those of {each}", other, _bias(layers[each]))
                yield guess(f"its bias is that of {each}", bias=_bias(layers[each]))
    for each in scene.before[:_NEAREST]:
        other_input = scene.entered(each)[1]
        if each != name and len(other_input) == len(x) and other_input[0].size == width:
            yield guess(f"it takes {each} as its input, where the reference's takes {name}", x=table(other_input))
    for words, rounded in _roundings(weight):
        yield guess(f"its weight is rounded to {words}", rounded)
    yield from _orders_of_rows(scene, x[rows] @ weight.T, weight, bias, guess)
    if (order := _order_of_heads(scene, x, weight, bias)) is not None:
        yield guess(*_about_heads(order, weight))


def _bias(layer: Linear) -> np.ndarray:
    return np.zeros(len(layer.weight)) if layer.bias is None else np.asarray(layer.bias, np.float64)


def _roundings(weight: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yields a weight in coarser types, with their names."""
    yield "float16", rounded_to_float16(weight)
    yield "bfloat16", rounded_to_bfloat16(weight)
    for words, blocks in (
        ("8 bits with one scale for each row", weight),
        ("8 bits with one scale", weight.reshape(1, -1)),
        (
            f"8 bits with one scale for {_BLOCK} values, as in q8_0",
            weight.reshape(-1, _BLOCK) if weight.shape[1] % _BLOCK == 0 else None,
        ),
    ):
        if blocks is not None:
            scales = np.abs(blocks).max(axis=1, keepdims=True) / 127
            scales[scales == 0] = 1.0
            stored = rounded_to_float16(scales) if "q8_0" in words else scales
            yield words, (np.round(blocks / scales) * stored).reshape(weight.shape)


def _orders_of_rows(
    scene: Scene, product: np.ndarray, weight: np.ndarray, bias: np.ndarray, guess: Callable[..., Guess]
) -> Iterator[Guess]:
    """Yields a weight whose rows are in another order than the values of its bias, as when a vocabulary is edited.

    Args:
        product: of the input with the weight, in the sample rows.
    """
    candidate = scene.pair[1]
    places = changed_columns(product + bias, candidate, scene.allowed)
    if not bias.any() or not 2 <= len(places) <= MAX_MATCHED or not np.isfinite(candidate).all():
        return
    r, c, b = product[:MATCHED_VALUES, places], candidate[:MATCHED_VALUES, places], bias[places]
    constants = (c - r).mean(axis=0)
    for words, noun, other, reference, values in (
        ("weight", "rows", "bias", r, c - b),
        ("bias", "values", "weight", b[None], constants[None]),
    ):
        if not is_close(np.sort(reference), np.sort(values), _SAME_VALUES):
            continue
        if (order := order_in(places, len(weight), matched(reference.T, values.T))) is None:
            continue
        moved = np.flatnonzero(order != np.arange(len(order)))
        sources = in_order(order[moved])
        sentence = (
            f"{noun} {in_order(moved)} of its {words} are the reference's {sources}, and its {other} keeps its order"
        )
        yield guess(sentence, weight[order]) if words == "weight" else guess(sentence, bias=bias[order])


def _order_of_heads(scene: Scene, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray | None:
    """Returns for each head of the weight the head of the input that it takes; None if each takes its own.

    The products of each head of the input with each head of the weight are fitted to the candidate.
    """
    query = scene.reference_stages.get(f"{scene.stage.removesuffix('output')}query")
    if scene.part != "output" or query is None or query.ndim != 3 or not 1 < query.shape[1] <= _MAX_HEADS:
        return None
    heads = query.shape[1]
    rows = scene.sample[:: max(1, len(scene.sample) // _FEW_ROWS)]
    if x.shape[1] % heads:
        return None
    inputs = x[rows].reshape(len(rows), heads, -1)
    parts = weight.reshape(len(weight), heads, -1)
    if len(rows) * len(weight) < 2 * heads * heads:
        return None
    pairs = np.einsum("rgd,ohd->ghro", inputs, parts, optimize=True).reshape(heads * heads, -1)
    shares = np.linalg.lstsq(pairs.T, (table(scene.candidate[rows]) - bias).ravel(), rcond=None)[0]
    order = shares.reshape(heads, heads).argmax(axis=0)
    return None if np.array_equal(order, np.arange(heads)) or len(set(order.tolist())) < heads else order


def _about_heads(order: np.ndarray, weight: np.ndarray) -> tuple[str, np.ndarray]:
    """Returns the words for heads in another order, and the weight that takes them so."""
    places = np.flatnonzero(order != np.arange(len(order)))
    sources = ", ".join(map(str, order[places].tolist()))
    parts = weight.reshape(len(weight), len(order), -1)
    permuted = np.empty_like(parts)
    permuted[:, order] = parts
    words = f"the columns of its weight for heads {', '.join(map(str, places.tolist()))} take heads {sources}"
    return words, permuted.reshape(weight.shape)
