"""The parameters of a checkpoint that the guesses at a stage may need, read together: each read takes a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from workbench.compare.guesses.guess import Linear, LinearLayers
from workbench.compare.guesses.recipes import recipes
from workbench.compare.guesses.relative import POSITIONS
from workbench.trace.inside import layer_and_part
from workbench.trace.step_names import step_and_stage

QUERIES = "encoder.queries"
"""The name of the checkpoint's table of queries."""


def neighbours(stage: str) -> list[str]:
    """Returns the stages of the same part in the layers before and after."""
    if (found := layer_and_part(stage)) is None:
        return []
    stack, _, number = found[0].rpartition(".")
    return [f"{stack}.{int(number) + step}.{found[1]}" for step in (-1, 1) if int(number) + step >= 0]


def read_once(
    layers: LinearLayers, stage: str, before: Sequence[str], shape_of: Callable[[str], tuple[int, ...]]
) -> LinearLayers:
    """Returns `layers` for the guesses at a stage: the first call reads all that they may need.

    Args:
        stage, before: as in `Scene`.
        shape_of: returns the shape of a stage of the reference.
    """

    @cache
    def known() -> Mapping[str, Linear]:
        return layers(list(dict.fromkeys(_names(stage, before, shape_of))))

    return lambda names: {name: known()[name] for name in names if name in known()}


def _names(stage: str, before: Sequence[str], shape_of: Callable[[str], tuple[int, ...]]) -> Iterator[str]:
    step, stage = step_and_stage(stage)
    yield stage
    yield from neighbours(stage)
    yield f"{stage}.output"
    yield from (f"{(layer_and_part(stage) or (stage, ''))[0]}.{each}" for each in POSITIONS)
    yield QUERIES
    if step is None:
        for recipe in recipes(stage, before, shape_of):
            yield from recipe.layers
