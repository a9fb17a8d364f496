"""Guesses at a stage whose steps and parameters are known: it is computed again with one step changed.

The reference has to show that the steps are right: from its own input, they give its own stage. Every change is tried
on the first rows, and what fits there is a guess for all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product

import numpy as np

from workbench.compare.guesses.chains import Function
from workbench.compare.guesses.guess import Guess, Linear, Scene, is_close, table
from workbench.compare.guesses.recipes import ALL, Recipe, recipes
from workbench.trace.step_names import step_and_stage

_TRIED_ROWS = 24  # on which each change is tried
_MAX_VALUES = 1 << 24  # of a stage and of what enters
_MAX_WHOLE = 1 << 17  # of what enters, where each change needs all rows
_MAX_PARAMETERS = 1 << 26  # of all layers of a recipe together


def recomputed(scene: Scene) -> Iterator[Guess]:
    """Yields the stage with one step of its computation changed."""
    step, stage = step_and_stage(scene.stage)
    if scene.layers is None or step is not None or not 0 < scene.reference.size <= _MAX_VALUES:
        return

    def shape_of(name: str) -> tuple[int, ...]:
        return (scene.reference if name == stage else scene.reference_stages[name]).shape

    @cache
    def parameters(names: tuple[str, ...]) -> Mapping[str, Linear]:
        """Returns the layers of these names in float64; none if one is missing or they are too large."""
        assert scene.layers is not None
        layers = scene.layers(names)
        if len(layers) < len(names) or sum(each.weight.size for each in layers.values()) > _MAX_PARAMETERS:
            return {}
        return {name: _in_float64(layer) for name, layer in layers.items()}

    for recipe in recipes(stage, scene.before, shape_of):
        others = (*recipe.added, *recipe.reads)
        if recipe.begins_with not in scene.before or any(each not in scene.reference_stages for each in others):
            continue
        sizes = [scene.reference_stages[each].size for each in (recipe.begins_with, *recipe.reads)]
        if max(sizes) > (_MAX_WHOLE if recipe.context == ALL else _MAX_VALUES):
            continue
        if not (layers := parameters(recipe.layers)):
            continue
        of_reference = _Computed(scene, recipe, side=0)
        for epsilon in recipe.epsilons:
            if of_reference.fits(recipe.steps(layers, epsilon, of_reference.stage).right):
                yield from _with_one_change(scene, recipe, layers, epsilon)
                return


def _in_float64(layer: Linear) -> Linear:
    bias = None if layer.bias is None else np.asarray(layer.bias, np.float64)
    return Linear(np.asarray(layer.weight, np.float64), bias)


def _with_one_change(scene: Scene, recipe: Recipe, layers: Mapping[str, Linear], epsilon: float) -> Iterator[Guess]:
    computed = _Computed(scene, recipe)
    steps = recipe.steps(layers, epsilon, computed.stage)
    if computed.fits(steps.right):
        return  # the error came in with the input
    for wrong in steps.wrong:
        if computed.fits(wrong.function):
            yield computed.guess(*wrong)
    for name, (words, times) in product(recipe.added, (("is not added", 0.0), ("is added twice", 2.0))):
        changed = _Computed(scene, recipe, times={name: times})
        if changed.fits(steps.right):
            yield changed.guess(f"{name} {words} to {recipe.begins_with}", steps.right)


class _Computed:
    """Computes a stage of one side from what enters it.

    Args:
        side: 0 for the reference, 1 for the candidate.
        times: the factors of stages that are added to what enters, other than 1.
    """

    def __init__(self, scene: Scene, recipe: Recipe, side: int = 1, times: Mapping[str, float] | None = None):
        self._scene, self._recipe, self._side = scene, recipe, side
        self._stage = (scene.reference, scene.candidate)[side]
        entering = table(scene.entered(recipe.begins_with)[side])
        for name in recipe.added:
            addend = self.stage(name)
            assert addend is not None
            entering = entering + (times or {}).get(name, 1.0) * addend
        self._entering = entering

    def stage(self, name: str) -> np.ndarray | None:
        """Returns another stage as a table; None if the reference does not have it.

        What the candidate does not show is the reference's: all stages before the first bad one are equal.
        """
        if name not in self._scene.reference_stages:
            return None
        shown = name in self._scene.before
        return table(self._scene.entered(name)[self._side] if shown else self._scene.reference_stages[name])

    def fits(self, function: Function) -> bool:
        """Returns whether a function of what enters gives the first rows of the stage."""
        rows = min(_TRIED_ROWS, len(self._stage) - self._recipe.others)
        try:
            values = function(self._entering[: self._recipe.rate * rows + self._recipe.context])[:rows]
        except (ValueError, IndexError):  # steps in another order may not fit together
            return False
        expected, stage = table(values), table(self._stage[:rows])
        return expected.shape == stage.shape and is_close(expected, stage, 2 * self._scene.allowed)

    def guess(self, words: str, function: Function, option: str = "") -> Guess:
        """Returns the guess that the stage is this function of what enters."""
        values = cache(lambda: table(function(self._entering)))
        last = len(self._stage) - self._recipe.others
        return Guess("recomputed", words, lambda rows: values()[rows], last=last, option=option)
