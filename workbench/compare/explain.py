"""Finds an explanation of the first bad stage of a candidate, such as "it equals the reference's llm.layers.1".

An explanation is a `Hint`. It is given only if it predicts the candidate to within rounding, on all its rows, from the
reference and from the candidate's earlier stages. Within rounding means that the remaining error is at most a tenth of
the stage's error, at most the stage's own limit, and at most a few times the error of the stages before, or the
distance from float64 that noise explains. A candidate with the weights of a quantised file may also keep what these
weights move. A fault of another kind gets no hint; then only the stage is known.

A hint says what the numbers are, not how the port computes them. Two causes may give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from workbench.compare.guesses.attention import weights
from workbench.compare.guesses.cif import CIF_STAGES, cif
from workbench.compare.guesses.codebooks import codebooks
from workbench.compare.guesses.context import context, projected
from workbench.compare.guesses.convolutions import convolutions
from workbench.compare.guesses.dither import dither
from workbench.compare.guesses.dropped import dropped
from workbench.compare.guesses.filter_bank import filter_banks
from workbench.compare.guesses.front_end import front_ends, lacks_filter_bank
from workbench.compare.guesses.functions import activations, caps, functions, gates
from workbench.compare.guesses.guess import (
    FILTER_BANK,
    Guess,
    Hint,
    LinearLayers,
    Scene,
    remainder_clause,
    remaining,
    units_of,
)
from workbench.compare.guesses.heads import fused
from workbench.compare.guesses.heard import other_sounds
from workbench.compare.guesses.linear import linear
from workbench.compare.guesses.norms import extra_norms, norm_weights, norms
from workbench.compare.guesses.orders import orders
from workbench.compare.guesses.other_sound import FRONT_END, of_another_recording
from workbench.compare.guesses.parameters import read_once
from workbench.compare.guesses.positions import positions, rows_under_positions
from workbench.compare.guesses.products import products
from workbench.compare.guesses.recomputed import recomputed
from workbench.compare.guesses.rotary import rotary
from workbench.compare.guesses.scales import channel_scales, row_scales, scales
from workbench.compare.guesses.stacking import STACKS, stacking
from workbench.compare.guesses.stages import addends, cmvn, other_stages, residuals
from workbench.compare.hints import shapes, where_it_differs
from workbench.compare.presets import EXACT
from workbench.trace.cuts import cut_like
from workbench.trace.order import kind_of
from workbench.trace.trace import Trace

if TYPE_CHECKING:
    from workbench.compare.comparison import Comparison
    from workbench.compare.noise.report import NoiseReport
    from workbench.compare.stage import StageComparison

_FAR_BETTER = 0.5  # a guess is better only if its remaining error is at most this share of the other's
_REMAINING_SHARE = 0.1  # of a stage's error that may remain
_ROUNDINGS = 16  # of float32 that may remain without earlier stages and without float64
_COARSE_ROUNDINGS = 4  # the same of a coarser type, which rounds results and not every term of a sum
_EARLIER_FACTOR = 4.0  # times the largest error of the stages before
_WEIGHTS_FACTOR = 2.0  # times the distance that the weights of a file move the stage; a fault may enlarge it
_MAX_STAGES = 8  # of an isolated run
_NUMBERS = ("numbers", "logits")
_VAGUE = ("constant of each channel",)  # kinds of which the weights may show the cause

_FAMILIES: tuple[Callable[[Scene], Iterator[Guess]], ...] = (
    other_stages,
    rotary,
    activations,
    gates,
    weights,
    context,
    norms,
    cmvn,
    stacking,
    filter_banks,
    other_sounds,
    front_ends,
    cif,
    functions,
    caps,
    convolutions,
    orders,
    fused,
    positions,
    rows_under_positions,
    scales,
    norm_weights,
    linear,
    projected,
    recomputed,
    channel_scales,
    lambda scene: chain(extra_norms(scene), row_scales(scene)),  # a norm nearly undoes a factor of a few rows
    addends,
    residuals,
    dropped,
    products,
    codebooks,
    dither,
)
"""In the order in which they are tried: what is known about a kind of stage comes before fits."""

_ON_SHAPES = (filter_banks, other_sounds, stacking, front_ends, cif)  # those that may change the shape


def explain(scene: Scene, error: float) -> Hint | None:
    """Returns the first explanation that predicts the candidate as closely as the scene requires; None without one."""
    if scene.candidate.ndim < 1 or not scene.candidate.size:
        return None
    families = _FAMILIES if scene.reference.shape == scene.candidate.shape else _ON_SHAPES
    if "c" in (scene.reference.dtype.kind, scene.candidate.dtype.kind):
        return None
    with np.errstate(all="ignore"):  # of numbers too large for a guess, which then does not fit
        for family in families:
            fitting = []
            for guess in family(scene):  # one at a time: a guess may hold a copy of the stage
                error_left = remaining(guess, scene.candidate, scene.sample, scene.allowed)
                if error_left <= scene.allowed:
                    fitting.append((error_left, guess))
            if fitting:
                return _hint(fitting, scene, error)
    return None


def _hint(fitting: list[tuple[float, Guess]], scene: Scene, error: float) -> Hint:
    """Returns the first guess that fits; a later one only if it fits far better.

    Guesses with the same words that fit equally well cannot be distinguished, so the hint names them together.
    """
    least_error_left, best_guess = fitting[0]
    for error_left, guess in fitting[1:]:
        if error_left < _FAR_BETTER * least_error_left:
            least_error_left, best_guess = error_left, guess
    other_options = [
        guess.option
        for error_left, guess in fitting
        if guess.option
        and guess.words == best_guess.words
        and _FAR_BETTER * error_left <= least_error_left
        and guess is not best_guess
    ]
    words = best_guess.words.replace("{}", " or ".join([best_guess.option, *other_options]))
    remainder = "" if best_guess.is_verified else f"; {remainder_clause(least_error_left)}"
    return Hint(best_guess.kind, scene.stage, f"{words}{remainder}", least_error_left, error)


def with_hints(
    comparison: Comparison,
    noise: NoiseReport | None,
    reference: Trace,
    candidate: Trace,
    sound: Callable[[], np.ndarray | None] | None = None,
    layers: LinearLayers | None = None,
    recorded: Callable[[], tuple[np.ndarray, int] | None] | None = None,
    same_weights: Trace | None = None,
) -> Comparison:
    """Returns the comparison with an explanation of its first bad stage, if there is one.

    In an isolated run each stage in error has a fault of its own, and the first few are explained. A stage that cannot
    be measured keeps the hint about its shape.

    Args:
        noise: the report on the same traces; it says what rounding explains, and it may find an earlier stage.
        sound: returns the samples that both sides heard, mono with full scale 1 at 16 kHz, if they are known.
        layers: returns linear layers of the reference.
        recorded: returns the samples [n, channels] of the sound at its own rate, and that rate in Hz, if it is known.
        same_weights: the reference's model with the weights of the candidate's file, if they are not the checkpoint's.
    """
    bugs = {each.stage for each in noise.bugs} if noise else set[str]()
    noise_stages = noise.noise if noise else frozenset[str]()
    stages_beyond = {each.stage for each in comparison.stages if not comparison.passes(each)} - noise_stages
    explained_stages = [each for each in comparison.stages if each.stage in bugs or each.stage in stages_beyond]
    explained_stages = [each for each in explained_stages if each.kind in _NUMBERS][
        : _MAX_STAGES if comparison.isolated else 1
    ]
    if not explained_stages:
        return comparison
    reference = cut_like(reference, candidate)
    same_weights = None if same_weights is None else cut_like(same_weights, candidate)
    changed = {
        each.stage: _with_other_input(
            _hinted(each, comparison, noise, reference, candidate, sound, layers, recorded, same_weights),
            comparison,
            reference,
            candidate,
        )
        for each in explained_stages
    }
    return replace(comparison, stages=tuple(changed.get(each.stage, each) for each in comparison.stages))


def _hinted(
    each: StageComparison,
    comparison: Comparison,
    noise: NoiseReport | None,
    reference: Trace,
    candidate: Trace,
    sound: Callable[[], np.ndarray | None] | None,
    layers: LinearLayers | None,
    recorded: Callable[[], tuple[np.ndarray, int] | None] | None,
    same_weights: Trace | None,
) -> StageComparison:
    needs_sound = each.stage == FILTER_BANK or lacks_filter_bank(each.stage, candidate)
    samples = sound() if sound and needs_sound else None
    allowed = _allowed(each, comparison, noise)
    if each.explanation and samples is None:
        is_vague = layers is not None and each.explanation.kind in _VAGUE
        if each.explanation.remaining <= allowed and not is_vague:
            return each
        # Without float64, more counted as rounding than it explains here.
        limit, units = each.limits.relative_l2, units_of(each.stage, len(each.shapes[0]))
        place = where_it_differs(each.numbers, limit, units) if each.numbers else None
        each = replace(each, hint=place, explanation=None)
    if each.mismatch and samples is None and each.stage not in (STACKS, *CIF_STAGES):
        return each
    if not each.mismatch and (
        each.numbers is None or each.numbers.nonfinite_differences or not each.numbers.relative_l2
    ):
        return each
    names = [entry.stage for entry in comparison.stages if (entry.numbers and entry.kind in _NUMBERS) or entry is each]
    index = names.index(each.stage)
    before = tuple(names[:index][::-1])
    scene = Scene(
        stage=each.stage,
        reference=reference[each.stage],
        candidate=candidate[each.stage],
        allowed=allowed,
        reference_stages=reference,
        candidate_stages=candidate,
        before=before,
        after=tuple(names[index + 1 :]),
        lacking=tuple(entry for entry in comparison.only_reference if kind_of(entry, reference[entry]) in _NUMBERS),
        roundoff=comparison.tolerances.preset.roundoff,
        inputs_of=comparison.inputs,
        layers=read_once(layers, each.stage, before, lambda name: reference[name].shape) if layers else None,
        samples=samples,
        recorded=recorded() if recorded and samples is not None else None,
    )
    new_hint = None
    error = each.numbers.relative_l2 if each.numbers else math.inf
    if same_weights is not None and not each.mismatch and all(name in same_weights for name in names):
        # The checkpoint's parameters do not belong to these weights.
        nearer = replace(
            scene, reference=same_weights[each.stage], reference_stages=same_weights, lacking=(), layers=None
        )
        new_hint = explain(nearer, error)
    new_hint = new_hint or explain(scene, error)
    if new_hint is None:
        return each
    if each.mismatch:
        mismatch = f"the shapes are {shapes(scene.reference, scene.candidate)}: {new_hint.sentence}"
        return replace(each, mismatch=mismatch, explanation=new_hint)
    return replace(each, hint=new_hint.sentence, explanation=new_hint)


def _with_other_input(
    each: StageComparison, comparison: Comparison, reference: Trace, candidate: Trace
) -> StageComparison:
    """Returns a stage that nothing explains, with the clause that the candidate may have had another input.

    A candidate that says what its input was has been checked before. If an earlier stage agrees, the input did, too.
    """
    if each.explanation or each.rule or candidate.meta.get("input_digest"):
        return each
    clause = None
    if each.stage in FRONT_END:
        clause = of_another_recording(reference[each.stage], candidate[each.stage])
        if clause and not each.mismatch:
            return replace(each, hint=clause)
    elif (
        each.stage == comparison.stages[0].stage
        and each.mismatch
        and len(each.shapes[0]) == 2
        and each.shapes[0][1:] == each.shapes[1][1:]
    ):
        clause = "a dump of another recording would differ so"
    if not clause or not each.mismatch or clause in each.mismatch:
        return each
    return replace(each, mismatch=f"{each.mismatch}; {clause}")


def _allowed(each: StageComparison, comparison: Comparison, noise: NoiseReport | None) -> float:
    """Returns the relative L2 that counts as rounding at a stage."""
    preset = comparison.tolerances.preset
    error = each.numbers.relative_l2 if each.numbers else math.inf
    allowed = min(_REMAINING_SHARE * error, preset.limits.relative_l2 or _ROUNDINGS * preset.roundoff)
    if noise:
        for entry in noise.stages:
            if entry.stage == each.stage:
                of_weights = _WEIGHTS_FACTOR * entry.of_weights
                return min(allowed, max(entry.bound + of_weights, _ROUNDINGS * 2.0**-24))
    earlier = () if comparison.isolated else comparison.stages[: comparison.stages.index(each)]
    earlier_errors = [
        entry.numbers.relative_l2
        for entry in earlier
        if entry.numbers and entry.kind in _NUMBERS and not entry.numbers.nonfinite_differences
    ]
    roundings = _ROUNDINGS if preset.roundoff <= EXACT.roundoff else _COARSE_ROUNDINGS
    return min(allowed, max(roundings * preset.roundoff, _EARLIER_FACTOR * max(earlier_errors, default=0.0)))
