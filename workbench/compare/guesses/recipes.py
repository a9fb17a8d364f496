"""How stages are computed whose steps a dump does not show: what enters, and the parameters and steps behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from workbench.compare.guesses.chains import Step
from workbench.compare.guesses.conformer_layers import (
    CONVOLUTION,
    conformer_attention,
    conformer_end,
    convolution_part,
)
from workbench.compare.guesses.language_layers import (
    HEAD_NORMS,
    HEAD_WIDTHS,
    LANGUAGE_EPSILONS,
    MIN_ROWS,
    PARTS,
    Rope,
    language_layer,
)
from workbench.compare.guesses.networks import (
    ENCODED,
    EPSILONS,
    HEADS,
    PADDING,
    PROJECTIONS,
    TOKENS,
    Layers,
    Stages,
    adaptor,
    decoder_layer,
    frame_weights,
    memory_block,
    sanm_attention,
    sanm_end,
    subsampling,
)
from workbench.compare.guesses.relative import POSITIONS
from workbench.compare.guesses.rotations import BASES, LAYOUTS
from workbench.compare.guesses.scaled_rope import SCALINGS
from workbench.trace.inside import layer_and_part

ALL = 1 << 30  # a context of all rows
_MAX_REACH = 40  # frames that a convolution over time sees ahead
_HALVES = tuple(f"{half}.{each}" for half in ("ffn1", "ffn2") for each in ("norm", "up", "down"))
_INPUT_NORMS = ("input_norm.query", "input_norm.key", "input_norm.value")
_POSITIONED = (*PROJECTIONS, "attention.output", *POSITIONS)
_MLP = ("norm1", "norm2", "mlp.up", "mlp.down")
_BLOCK = (*_MLP, *PROJECTIONS, "attention.output")
_CROSS = tuple(f"cross_attention.{each}" for each in ("query", "key", "value", "output"))
_DECODER = ("norm1", "norm2", "norm3", "mlp.up", "mlp.down", "mlp.hidden_norm", "fsmn", *_CROSS)


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
    epsilons: tuple[float, ...] = EPSILONS  # that its norms may have


def recipes(stage: str, before: Sequence[str], shape_of: Callable[[str], tuple[int, ...]]) -> Iterator[Recipe]:
    """Yields the recipes that a stage may have.

    Args:
        before: the stages before it, the nearest one first.
        shape_of: returns the shape of a stage of the reference.
    """
    rows = shape_of(stage)[0]
    names: tuple[str, ...]
    layer, part = layer_and_part(stage) or (stage, "")
    entering = next((each for each in before if not each.startswith(f"{layer}.")), "")
    if stage == "encoder.input":
        names = ("encoder.subsampling.0", "encoder.subsampling.1", "encoder.subsampling.output")
        yield Recipe("frontend.features", names, subsampling, 4, PADDING)
    elif stage in ("adaptor.output", "adaptor.layers.0") and entering == "encoder.output" and rows:
        frames = shape_of(entering)[0]
        for rate in dict.fromkeys((max(frames // rows, 1), -(-frames // rows))):  # a rest is left out or padded
            yield from _adaptors(stage, rate)
    elif stage == "predictor.alphas":
        names = ("predictor.convolution", "predictor.output")
        yield Recipe(entering, names, frame_weights, context=1, others=1)
    elif part == "fsmn" and layer.startswith("encoder."):
        names = _named(layer, "norm1", "norm2", *PROJECTIONS, "fsmn")
        yield Recipe(entering, names, partial(memory_block, layer=layer), context=_MAX_REACH)
    elif part == "attention" and f"{layer}.fsmn" in before:
        steps = partial(sanm_attention, layer=layer)
        yield Recipe(f"{layer}.fsmn", _named(layer, "attention.output"), steps)
    elif part == "attention" and layer.startswith("encoder."):
        names = _named(layer, *_HALVES, *_INPUT_NORMS, *_POSITIONED)
        yield Recipe(entering, names, partial(conformer_attention, layer=layer), context=ALL)
    elif part == "convolution":
        added, names = _named(layer, "ffn1.residual"), _named(layer, *CONVOLUTION)
        yield Recipe(
            f"{layer}.attention", names, partial(convolution_part, layer=layer), context=_MAX_REACH, added=added
        )
    elif f"{stage}.convolution" in before:
        added, names = _named(stage, "attention.residual"), _named(stage, *_HALVES, "norm")
        yield Recipe(f"{stage}.convolution", names, partial(conformer_end, layer=stage), added=added)
    elif f"{stage}.fsmn" in before and f"{stage}.attention" in before:
        added = (f"{stage}.fsmn", *([entering] if entering and shape_of(entering) == shape_of(stage) else []))
        yield Recipe(f"{stage}.attention", _named(stage, *_MLP), partial(sanm_end, layer=stage), added=added)
    elif part == "" and stage.startswith("decoder.layers.") and ENCODED in before:
        last_layer = next((each for each in before if each.startswith("encoder.layers.") and each.count(".") == 2), "")
        others = (last_layer, TOKENS)
        for heads, is_causal in product(HEADS, (True, False)):
            steps = partial(decoder_layer, layer=stage, heads=heads, is_causal=is_causal, others=others)
            yield Recipe(entering, _named(stage, *_DECODER), steps, context=ALL, reads=(ENCODED,))
    elif part == "" and stage.startswith("llm.layers.") and rows >= MIN_ROWS:
        yield from _language(stage, entering)


def _language(stage: str, entering: str) -> Iterator[Recipe]:
    positions = [*((base, "") for base in BASES), *((each.base, words) for words, each in SCALINGS.items())]
    for norms, width, (base, scaling), layout in product((HEAD_NORMS, ()), HEAD_WIDTHS, positions, LAYOUTS):
        steps = partial(language_layer, layer=stage, rope=Rope(width, base, layout, scaling))
        yield Recipe(entering, _named(stage, *PARTS, *norms), steps, epsilons=LANGUAGE_EPSILONS)


def _named(layer: str, *parts: str) -> tuple[str, ...]:
    """Returns the names of parts of a layer."""
    return tuple(f"{layer}.{each}" for each in parts)


def _adaptors(stage: str, rate: int) -> Iterator[Recipe]:
    names = ("adaptor.linear1", "adaptor.linear2")
    if stage == "adaptor.output":
        yield Recipe("encoder.output", names, partial(adaptor, rate=rate), rate)
        return
    for heads in HEADS:
        steps = partial(adaptor, rate=rate, layer=stage, heads=heads)
        yield Recipe("encoder.output", (*names, *_named(stage, *_BLOCK)), steps, rate, ALL)
