"""Guesses at rotary positions: the other layout, another base, positions off by one, turned the other way.

A rotary embedding turns pairs of channels of each head by an angle that grows with the position. The angles are read
off the reference, from the stages before and after it. Source: Su et al., RoFormer (2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, is_few, named, table
from workbench.compare.guesses.rotations import (
    BASES,
    LAYOUT_WORDS,
    LAYOUTS,
    MIN_RATE,
    SAME_ANGLES,
    SHIFTS,
    Complex,
    angles_between,
    base_of,
    round_bases,
    turns,
)
from workbench.trace.step_names import step_and_stage

_MAX_CACHE_SHIFT = 9  # a shift in a row of a cache is tried if it is smaller, or leads to position 0


def rotary(scene: Scene) -> Iterator[Guess]:
    """Yields other rotary embeddings of queries or keys [rows, heads, head width]."""
    if scene.stage.endswith(".cache.key"):
        yield from _of_cache(scene)
    if scene.part not in ("query_rope", "key_rope") or scene.reference.ndim != 3 or scene.reference.shape[2] % 2:
        return
    projection = scene.part.removesuffix("_rope")
    if (
        inputs := scene.input_named(
            f"{projection}_norm", projection, f"attention.{projection}_norm", f"attention.{projection}"
        )
    ) is None:
        return
    reference_input, candidate_input = inputs
    if reference_input.shape != scene.reference.shape:
        return
    if len(reference_input) < 3:
        yield from _of_step(scene, projection, reference_input, candidate_input)
        return
    layout = next((name for name in LAYOUTS if turns(name, reference_input, scene.reference, scene.allowed)), None)
    if layout is None:
        return
    angles = angles_between(layout, reference_input, scene.reference)  # [rows, pairs], as e^(i angle)
    other_layout = next(name for name in LAYOUTS if name != layout)

    def guess(kind: str, words: str, factors: Complex, applied_layout: str = layout) -> Guess:
        return Guess(kind, words, _turned(applied_layout, candidate_input, factors))

    from_candidate_input = guess("RoPE", "", angles).expected(scene.sample)
    if is_close(from_candidate_input, scene.pair[1], 2 * scene.allowed):
        return  # the error came in with the input
    yield guess(
        "RoPE layout",
        f"RoPE turns {LAYOUT_WORDS[other_layout]}, where the reference turns {LAYOUT_WORDS[layout]}",
        angles,
        other_layout,
    )
    yield guess("RoPE", "RoPE is left out", np.ones_like(angles))
    yield guess("RoPE", "RoPE turns the other way", angles.conj())
    yield guess("RoPE", "RoPE is applied twice", angles * angles)
    rates = np.angle(angles[1] * angles[0].conj())
    count, pairs = angles.shape
    start = np.angle(angles[0])
    positions = np.arange(count)[:, None]
    regular = np.exp(1j * (start + positions * rates))
    if not is_close(regular.view(np.float64), np.ascontiguousarray(angles).view(np.float64), 1e-2):
        return
    for shift in SHIFTS:
        offset = f"{shift:+d}"
        rotations = np.exp(1j * (start + (positions + shift) * rates))
        yield guess("RoPE position", f"RoPE's positions are off by {offset}", rotations)
    reference_base = base_of(angles)
    candidate_angles = angles_between(layout, candidate_input, scene.candidate)
    reference_clause = (
        f"where the reference has {reference_base:.0f}" if reference_base else "where the reference has another"
    )
    for base in dict.fromkeys((*BASES, *round_bases(candidate_angles))):
        if base != reference_base:
            rotations = np.exp(1j * positions * base ** (-np.arange(pairs) / pairs))
            yield guess("RoPE base", f"RoPE has the base {base:.0f}, {reference_clause}", rotations)
    yield from _partial(scene, layout, candidate_input, rates, reference_base)
    # Fast pairs may have turned by more than half a circle in a row, and slow ones show too few digits.
    measurable = (np.abs(rates) > MIN_RATE) & (np.abs(rates) < 1.5)
    if measurable.any():
        times = np.angle(candidate_angles[1] * candidate_angles[0].conj())[measurable] / rates[measurable]
        for digits in (2, 4):
            factor = float(f"{np.median(times):.{digits}g}")
            if factor not in (0.0, 1.0):
                rotations = np.exp(1j * (start + positions * rates * factor))
                words = f"RoPE turns by {factor:g} times the reference's angles, as when positions are scaled"
                yield guess("RoPE scale", words, rotations)


def _turned(layout: str, values: np.ndarray, factors: Complex) -> Callable[[Rows], np.ndarray]:
    """Returns a function from rows to the values there [rows, heads * width], each pair multiplied by its factor.

    Args:
        values: [rows, heads, width].
        factors: [rows, pairs], as e^(i angle).
    """

    def expected(rows: Rows) -> np.ndarray:
        pairs = LAYOUTS[layout][0](np.asarray(values[rows], np.float64)) * factors[rows][:, None]
        return LAYOUTS[layout][1](pairs).reshape(len(rows), -1)

    return expected


def _partial(
    scene: Scene, layout: str, candidate_input: np.ndarray, rates: np.ndarray, base: float | None
) -> Iterator[Guess]:
    """Yields embeddings that turn only the first channels of each head, with rates of their own or the first ones."""
    width = scene.reference.shape[2]
    for turned in (width // 2, width // 4):
        if turned % 2 or not turned:
            continue
        own_rates = [] if base is None else [base ** (-np.arange(turned // 2) / (turned // 2))]
        for each in (*own_rates, rates[: turned // 2]):

            def expected(rows: Rows, rates: np.ndarray = each, turned: int = turned) -> np.ndarray:
                x = np.asarray(candidate_input[rows], np.float64)
                pairs = LAYOUTS[layout][0](x[..., :turned]) * np.exp(1j * rows[:, None] * rates)[:, None]
                return np.concatenate([LAYOUTS[layout][1](pairs), x[..., turned:]], axis=-1).reshape(len(rows), -1)

            words = f"RoPE turns only the first {turned} of the {width} channels of a head"
            yield Guess("RoPE layout", words, expected)


def _of_step(
    scene: Scene, projection: str, reference_input: np.ndarray, candidate_input: np.ndarray
) -> Iterator[Guess]:
    """Yields other positions of a decoding step, whose rates are read off the prompt's pass of the reference."""
    step, prompt_stage = step_and_stage(scene.stage)
    before_prompt = next(
        (
            name
            for each in (f"{projection}_norm", projection)
            if (name := f"{prompt_stage.removesuffix(scene.part)}{each}") in scene.reference_stages
        ),
        None,
    )
    if not step or before_prompt is None or prompt_stage not in scene.reference_stages:
        return
    before, after = scene.reference_stages[before_prompt], scene.reference_stages[prompt_stage]
    if before.shape != after.shape or before.shape[2] != scene.reference.shape[2] or len(before) < 2:
        return
    layout = next((name for name in LAYOUTS if turns(name, before, after, scene.allowed)), None)
    if layout is None or not turns(layout, reference_input, scene.reference, scene.allowed):
        return
    prompt_angles, angles = (
        angles_between(layout, before, after),
        angles_between(layout, reference_input, scene.reference),
    )
    rotation = prompt_angles[1] * prompt_angles[0].conj()  # from one position to the next

    def guess(words: str, factors: Complex) -> Guess:
        return Guess("RoPE position", words, _turned(layout, candidate_input, factors))

    if is_close(guess("", angles).expected(scene.sample), scene.pair[1], 2 * scene.allowed):
        return  # the error came in with the input
    for shift in SHIFTS:
        yield guess(f"RoPE's position is off by {shift:+d}", angles * rotation**shift)


def _of_cache(scene: Scene) -> Iterator[Guess]:
    """Yields other positions of a few rows of a cache of turned keys, whose base and layout are unknown."""
    r, c = (np.asarray(side, np.float64) for side in (scene.reference, scene.candidate))
    if r.ndim != 3 or r.shape[2] % 2 or not r.size:
        return
    sizes = np.sqrt(np.square(r).sum(axis=(1, 2)))
    errors = np.sqrt(np.square(c - r).sum(axis=(1, 2)))
    places = np.flatnonzero(errors > 2 * scene.allowed * max(float(sizes.max()), 1e-30))
    if not len(places) or not is_few(places, len(r)):
        return
    first, pairs = int(places[0]), r.shape[2] // 2
    shifts = dict.fromkeys((*SHIFTS, *(sign * n for n in range(3, _MAX_CACHE_SHIFT) for sign in (1, -1)), -first))
    for paired, unpaired in LAYOUTS.values():
        for base, shift in product(BASES, (each for each in shifts if each)):
            factors = np.exp(1j * shift * base ** (-np.arange(pairs) / pairs))
            turned = unpaired(paired(r[places]) * factors)
            if is_close(turned, c[places], max(scene.allowed * len(r), SAME_ANGLES)):
                changed = r.copy()
                changed[places] = turned
                words = f"RoPE's position is off by {shift:+d} in {named('row', places)}"
                yield Guess("RoPE position", words, lambda rows, x=changed: table(x[rows]))  # type: ignore[misc]
