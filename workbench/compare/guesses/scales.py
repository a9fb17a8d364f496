"""Guesses that fit factors and constants of the whole stage, each channel or each row; and coarser number types."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from workbench.compare.guesses.guess import FILTER_BANK, Guess, Rows, Scene, is_few, listed, named, table, units_of
from workbench.compare.guesses.products import PRODUCTS
from workbench.compare.guesses.rounding import rounded_to_bfloat16, rounded_to_float16

_FITTED = 8  # rows, or channels, that a fit of two numbers needs
_FITTED_ONE = 3  # rows that a fit of one number for each channel needs
_VARIES = 100  # times the allowed error by which rows have to differ
_CLOSE = 2e-4
_LOUDEST = 30.0  # change of a filter bank's logarithms that another volume of the sound may explain
_ROUNDINGS = 4  # times the allowed error that a fitted number may be off
_MAX_NOISE = 0.1  # of a factor
_STANDS_OUT = 1e-3  # of the largest change: smaller ones are rounding
_MAX_VALUES = 1 << 24  # of a stage whose rows are fitted
_FULL_SCALE = 32768
_BFLOAT16, _FLOAT16 = 2.0**-8, 2.0**-11  # unit roundoff
_STEPS = 4  # roundings of a type that the error of a stage computed in it may take


def scales(scene: Scene) -> Iterator[Guess]:
    """Yields fits with few numbers first, because fits with many numbers also fit those cases."""
    r, c = scene.pair
    if not (np.isfinite(r).all() and np.isfinite(c).all()) or r.size < _FITTED:
        return
    if not c.any():
        if not np.any(scene.candidate):
            yield Guess("zeros", "it is all zeros", _nothing, is_verified=True)
        return
    yield from _of_whole_stage(scene, r, c)
    yield from coarser(scene, r, c)


def channel_scales(scene: Scene) -> Iterator[Guess]:
    """Yields a constant, a factor, or both of each channel."""
    if units_of(scene.stage, scene.reference.ndim)[0] != "row":
        return  # a few heads would fit a number for each pair of query and key
    r, c = scene.pair
    if not (np.isfinite(r).all() and np.isfinite(c).all()) or r.shape[1] < 2 or not c.any():
        return
    # Rows that are all alike show nothing about a channel.
    size = float(np.linalg.norm(r))
    if len(r) < _FITTED_ONE or not np.linalg.norm(r - r.mean(axis=0)) > _VARIES * max(scene.allowed, 1e-7) * size:
        return
    yield from _of_channels(scene, r, c)


def _of_whole_stage(scene: Scene, r: np.ndarray, c: np.ndarray) -> Iterator[Guess]:
    reference = scene.reference
    square = float((r * r).sum())
    factor = float((r * c).sum()) / square if square else 0.0
    if factor:
        yield Guess(
            "factor",
            f"it is {_number(factor)} times the reference{_known_factor(factor, scene)}",
            lambda rows: factor * table(reference[rows]),
        )
    constant = float((c - r).mean())
    if constant:
        yield Guess(
            "constant",
            f"it is the reference plus {_number(constant)}{_known_constant(constant, scene)}",
            lambda rows: table(reference[rows]) + constant,
        )
    centred = r - r.mean()
    spread = float((centred * centred).sum())
    if spread and r.size > 4 * _FITTED:
        a = float((centred * (c - c.mean())).sum()) / spread
        b = float(c.mean() - a * r.mean())
        if a:
            yield Guess(
                "factor and constant",
                f"it is {_number(a)} times the reference plus {_number(b)}",
                lambda rows: a * table(reference[rows]) + b,
            )


def _of_channels(scene: Scene, r: np.ndarray, c: np.ndarray) -> Iterator[Guess]:
    reference = scene.reference
    noise = _noise(scene, r, axis=0)
    constants = (c - r).mean(axis=0)
    words = _few_places(
        constants, 0.0, noise.absolute, "channel", "the reference's plus {:.6g}", "the reference's plus a constant"
    )
    yield Guess(
        "constant of each channel",
        words or f"each channel is the reference's plus a constant, as when {_shifted_by(scene)}",
        lambda rows: table(reference[rows]) + constants,
    )
    square = (r * r).sum(axis=0)
    factors = np.divide((r * c).sum(axis=0), square, out=np.ones_like(square), where=square > 0)
    words = _zeros(factors, noise.relative, "channel") or _few_places(
        factors, 1.0, noise.relative, "channel", "{:.6g} times the reference's", "a multiple of the reference's"
    )
    yield Guess(
        "factor of each channel",
        words or f"each channel is a multiple of the reference's, as when {_scaled_by(scene)}",
        lambda rows: factors * table(reference[rows]),
    )
    mean_r, mean_c = r.mean(axis=0), c.mean(axis=0)
    variance = np.square(r - mean_r).sum(axis=0)
    slopes = np.divide(
        ((r - mean_r) * (c - mean_c)).sum(axis=0), variance, out=np.zeros_like(variance), where=variance > 0
    )
    if len(r) < _FITTED or not slopes.any():
        return
    # How far a channel is from the reference's: in its factor, or in its constant by the channel's own size.
    shifts = np.divide(np.abs(mean_c - slopes * mean_r), np.sqrt(square / len(r)), out=np.abs(mean_c), where=square > 0)
    affine = "a multiple of the reference's plus a constant"
    changes = np.maximum(np.abs(slopes - 1), shifts)
    words = _few_places(changes, 0.0, noise.relative, "channel", affine, affine)
    if not words and (np.abs(slopes / slopes[0] - 1) < _CLOSE).all():
        times = _number(float(np.median(slopes)))
        words = f"each channel is {times} times the reference's plus a constant of its own"
        if times == "1":
            words = f"each channel is the reference's plus a constant, as when {_shifted_by(scene)}"
        elif scene.part in PRODUCTS:
            words += ", as when a weight is scaled and its bias is not"
    yield Guess(
        "factor and constant of each channel",
        words or f"each channel is {affine}{_affine_by(scene)}",
        lambda rows: slopes * (table(reference[rows]) - mean_r) + mean_c,
    )


def _shifted_by(scene: Scene) -> str:
    """Returns what may give each channel a constant, by what the stage is."""
    if scene.stage == FILTER_BANK:
        return "its triangles have another height or the sound is filtered"
    return "a bias or a shift is left out or wrong"


def _scaled_by(scene: Scene) -> str:
    """Returns what may give each channel a factor, by what the stage is."""
    if scene.part in PRODUCTS:
        return "the rows of its weight have other scales"
    return "CMVN has another scale" if scene.stage.startswith("frontend.") else "a norm's weight is left out or wrong"


def _affine_by(scene: Scene) -> str:
    """Returns what may give each channel a factor and a constant, as an addition to the sentence."""
    if scene.part in PRODUCTS:
        return ", as when the rows of its weight have other scales and its bias has not"
    return f", as when {'CMVN' if scene.stage.startswith('frontend.') else 'a norm'} is left out, done twice or wrong"


@dataclass(frozen=True)
class _Noise:
    """The most by which rounding changes the numbers that are fitted to each row or channel."""

    absolute: float  # of a constant
    relative: np.ndarray  # of a factor


def _noise(scene: Scene, r: np.ndarray, axis: int) -> _Noise:
    """Returns what rounding does to the fits of a table, summed over an axis."""
    absolute = _ROUNDINGS * scene.allowed * math.sqrt(float(np.square(r).mean()))
    sizes = np.sqrt(np.square(r).mean(axis=axis))
    relative = np.divide(absolute, sizes, out=np.full_like(sizes, _MAX_NOISE), where=sizes > 0)
    return _Noise(absolute, np.minimum(relative, _MAX_NOISE))


def _zeros(factors: np.ndarray, noise: np.ndarray, unit: str) -> str:
    """Returns the sentence for places that are zeros while the others agree; empty otherwise."""
    close = np.maximum(noise, _CLOSE)
    zeros = np.abs(factors) < close
    if not zeros.any() or not (zeros | (np.abs(factors - 1) < close)).all():
        return ""
    places = np.flatnonzero(zeros)
    verb = "is" if len(places) == 1 else "are"
    return f"of {len(factors)} {unit}s, {named(unit, places)} {verb} zeros, and the others agree"


def row_scales(scene: Scene) -> Iterator[Guess]:
    """Yields a factor, or a constant, of each row."""
    if scene.pair[0].shape[1] < _FITTED or scene.reference.size > _MAX_VALUES:
        return
    r, c = table(scene.reference), table(scene.candidate)
    square = (r * r).sum(axis=1)
    factors = np.divide((r * c).sum(axis=1), square, out=np.ones_like(square), where=square > 0)
    unit, _ = units_of(scene.stage, scene.reference.ndim)
    noise = _noise(scene, r, axis=1)
    words = _zeros(factors, noise.relative, unit) or _few_places(
        factors, 1.0, noise.relative, unit, "{:.6g} times the reference's", "a multiple of the reference's"
    )
    yield Guess(
        "factor of each row",
        words
        or f"each {unit} is the reference's times a factor of its own, as when a norm is left out, done twice, or has "
        "another epsilon",
        lambda rows: factors[rows, None] * r[rows],
    )
    constants = (c - r).mean(axis=1)
    words = _few_places(
        constants, 0.0, noise.absolute, unit, "the reference's plus {:.6g}", "the reference's plus a constant"
    )
    yield Guess(
        "constant of each row",
        words or f"each {unit} is the reference's plus a constant of its own",
        lambda rows: r[rows] + constants[rows, None],
    )


def _few_places(
    numbers: np.ndarray, neutral: float, noise: float | np.ndarray, unit: str, one_form: str, many_form: str
) -> str:
    """Returns the sentence for a few places whose number is not the neutral one; empty if there are many.

    Args:
        noise: by how much rounding changes a number.
    """
    errors = np.abs(numbers - neutral)
    places = np.flatnonzero(errors > np.maximum(noise, _STANDS_OUT * errors.max(initial=0.0)))
    if not len(places) or not is_few(places, len(numbers)):
        return ""
    if len(places) == 1:
        return (
            f"of {len(numbers)} {unit}s, only {unit} {places[0]} differs: it is {one_form.format(numbers[places[0]])}"
        )
    return f"of {len(numbers)} {unit}s, only {unit}s {listed(places)} differ: each is {many_form}"


def coarser(scene: Scene, r: np.ndarray, c: np.ndarray) -> Iterator[Guess]:
    """Yields coarser types, if every value of the candidate is representable in them and the error has their size."""
    size = float(np.linalg.norm(r))
    error = float(np.linalg.norm(c - r)) / size if size else math.inf
    for name, roundoff, rounded_to in (
        ("bfloat16", _BFLOAT16, rounded_to_bfloat16),
        ("float16", _FLOAT16, rounded_to_float16),
    ):
        if roundoff <= scene.roundoff:
            continue  # expected anyway
        if np.array_equal(rounded_to(c), c) and not np.array_equal(rounded_to(r), r):
            is_one_rounding = _same_rounding(rounded_to(r), c)
            if not is_one_rounding and not 0.1 * roundoff <= error <= _STEPS * roundoff:
                return
            words = (
                f"it is the reference rounded to {name}"
                if is_one_rounding
                else f"it is in {name}: its values all are, and its error is of that size"
            )
            yield Guess("coarser type", words, _nothing, is_verified=True)
            return


def _nothing(rows: Rows) -> np.ndarray:
    raise AssertionError("this guess predicts nothing")


def _same_rounding(rounded: np.ndarray, c: np.ndarray) -> bool:
    """Returns whether nearly all values are the rounded ones; ties and the reference's own rounding move a few."""
    return bool((rounded == c).mean() > 0.98)


def _number(value: float) -> str:
    return f"{value:.6g}"


def _known_factor(factor: float, scene: Scene) -> str:
    """Returns what a factor may come from, as an addition to the sentence."""
    known_factors = {
        math.log10(math.e): "log10 e: logarithms of base 10, not e",
        math.log(10): "ln 10: logarithms of base e, not 10",
        math.log2(math.e): "log2 e: logarithms of base 2, not e",
        10 * math.log10(math.e): "10 log10 e: decibels, not natural logarithms",
        20 * math.log10(math.e): "20 log10 e: decibels of amplitudes",
        1.0 * _FULL_SCALE: "the full scale of 16 bits",
        1 / _FULL_SCALE: "one over the full scale of 16 bits",
    }
    for value, words in known_factors.items():
        if math.isclose(abs(factor), value, rel_tol=_CLOSE):
            return f" ({words})"
    for width in scene.widths:
        if width > 1:
            for value, words in ((math.sqrt(width), f"√{width}"), (1 / math.sqrt(width), f"1/√{width}")):
                if math.isclose(abs(factor), value, rel_tol=_CLOSE):
                    return f" ({words}, a scale by the width)"
            if math.isclose(factor, math.sqrt(1 - 1 / width), rel_tol=1e-3 / width):
                return f" (√({width - 1}/{width}), as when a norm divides its sum by {width - 1}, not by {width})"
    return ""


def _known_constant(constant: float, scene: Scene) -> str:
    samples = 2 * math.log(_FULL_SCALE)
    for value, words in (
        (samples, "2 ln 32768: samples of full scale 32768, not 1"),
        (-samples, "-2 ln 32768: samples of full scale 1, not 32768"),
    ):
        if math.isclose(constant, value, rel_tol=_CLOSE):
            return f" ({words})"
    if scene.stage == FILTER_BANK and abs(constant) < _LOUDEST:
        return f" (as if the samples were multiplied by {math.exp(constant / 2):.6g})"
    return ""
