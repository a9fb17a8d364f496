"""Guesses at a log-mel filter bank with other choices: window, pre-emphasis, mel scale, where frames begin.

If the sound is known, the reference's filter bank shows its choices. Then choices are changed, one after another, as
long as the result comes nearer to the candidate. The hint is given only if it is met in the end, as for other guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from workbench.audio.constants import INT16_SCALE, MEL_LOW_HZ, PREEMPHASIS
from workbench.compare.guesses.frequency_scales import SCALES, scale_words
from workbench.compare.guesses.guess import FILTER_BANK, Guess, Rows, Scene, relative_l2, remaining
from workbench.compare.guesses.mel_bank import (
    FLOOR,
    LENGTH,
    LIBRARY,
    LOGARITHMS,
    POINTS,
    SHIFT,
    SPEECH_FEATURES,
    WHISPER,
    Bank,
    energy_of,
)
from workbench.core.phrases import enumerated

_TRIED_ROWS = 24
_TRIED_BEHIND = 4  # rows behind the end of the sound
_MAX_CHANGES = 6
_NEARER = 0.8  # a change is kept if at most this share of the difference remains
_LOWS = (MEL_LOW_HZ, 0.0, 40.0, 60.0, 64.0, 80.0, 125.0, 133.3333)  # Hz
_ADDED = (1.0, 1e-3, 1e-5, 1e-6, 1e-8, 1e-9, 1e-10, 2.0**-24)  # to energies before the logarithm
_ROUNDING = 16 * 2.0**-24  # relative L2 by which the reference may differ from its filter bank
_FLOOR_NAMES = ("floor", "decades")
_SAME_FLOOR = 1e-3  # relative difference of two floors that count as one
_LENGTHS = (LENGTH, 320, 480, 512, 256)
_LONGEST = 1024  # samples
_MIN_SHIFT, _MAX_SHIFT = 40, 400
_FARTHEST, _STEP = 512, 8  # samples between the starts, and the lengths, that are tried first
_NEAREST = 3  # of those, whose neighbours are tried next
_PREEMPHASES = (*np.round(np.arange(0.8, 1.0, 0.005), 3).tolist(), 15 / 16, 31 / 32)
_HEADER_SIZE = 22  # samples of 16 bits in the header of a WAV file
_HEADER = ", as when the 44 bytes of a WAV file's header are read as sound"
_CORNERS = {
    "exact": "with exact corners",
    "floor": "with corners rounded down to whole bins",
    "nearest": "with corners rounded to whole bins",
    "next": "with corners rounded down to whole bins of a transform of one point more, as python_speech_features has",
}
_WITH_SCALE: tuple[dict[str, Any], ...] = ({"straight": True}, {"low": 0.0}, {"straight": True, "low": 0.0})
_LOGARITHM_WORDS = {
    "natural": "the natural logarithm",
    "log10": "the logarithm to base 10",
    "dB": "decibels",
    "log2": "the logarithm to base 2",
    "whisper": "Whisper's (log10 + 4) / 4",
}
_HIGHS = (8000.0, 7600.0, 7800.0, 7500.0, 7000.0, 6855.4976, 4000.0)


def filter_banks(scene: Scene) -> Iterator[Guess]:
    """Yields the filter bank of the sound with the choices that come nearest to the candidate."""
    samples, reference, candidate = scene.samples, scene.reference, scene.candidate
    if (
        scene.stage != FILTER_BANK
        or samples is None
        or reference.ndim != 2
        or reference.shape[1:] != candidate.shape[1:]
    ):
        return
    bands = reference.shape[1]
    reference_bank = bank_of(reference, samples, scene.allowed)
    if reference_bank is None:
        return
    rows = _spread_rows(len(candidate), len(samples))
    if candidate.shape == reference.shape:  # those that differ most, since a floor changes a few only
        row_errors = np.linalg.norm(candidate.astype(np.float64) - reference, axis=1)
        rows = np.union1d(rows[::2], np.argsort(row_errors)[-_TRIED_ROWS // 2 :])
    candidate_rows = np.asarray(candidate[rows], np.float64)
    if relative_l2(candidate_rows, reference_bank(samples, rows, bands)) <= scene.allowed:
        return  # other rows differ
    if (found := _found(scene, samples, rows, reference_bank)) is not None:
        found_bank, first = found
        tried_rows = rows[rows >= first]
        tried = np.asarray(candidate[tried_rows], np.float64)

        def is_near(bank: Bank) -> bool:
            return relative_l2(tried, bank(samples, tried_rows, bands)) <= scene.allowed

        # The simpler one may not hold in rows that were not tried.
        for bank in dict.fromkeys(
            (_simplified(found_bank, reference_bank, float(candidate.max()), is_near), found_bank)
        ):
            where = f"from row {first} on " if first else ""
            header = _HEADER * bool(first and bank.start == -_HEADER_SIZE)
            words = f"{where}{_bank_difference(reference_bank, bank)}{header}"
            guess = Guess("filter bank", words, partial(_rows_of, bank, samples, bands), first)
            yield guess
            if remaining(guess, candidate, scene.sample, scene.allowed) <= scene.allowed:
                return


def _rows_of(bank: Bank, samples: np.ndarray, bands: int, rows: Rows) -> np.ndarray:
    return bank(samples, rows, bands)


def _simplified(bank: Bank, reference_bank: Bank, most: float, is_near: Callable[[Bank], bool]) -> Bank:
    """Returns the filter bank without the changes that make no difference, such as a floor that nothing reaches.

    Args:
        most: the candidate's largest value; a floor may be so many decades below it.
    """
    with_decades = _with_decades(replace(bank, decades=WHISPER.decades), most)
    if abs(with_decades.floor - bank.floor) <= _SAME_FLOOR * bank.floor and is_near(with_decades):
        bank = with_decades
    singles = [(each.name,) for each in fields(Bank) if each.name not in _FLOOR_NAMES]
    for names in [_FLOOR_NAMES, *singles]:
        plain = replace(bank, **{name: getattr(reference_bank, name) for name in names})
        if plain != bank and is_near(plain):
            bank = plain
    return bank


def bank_of(reference: np.ndarray, samples: np.ndarray, allowed: float) -> Bank | None:
    """Returns the filter bank that a reference has; None if it has an unusual one."""
    rows = np.unique(np.linspace(0, len(reference) - 1, _TRIED_ROWS).round().astype(int))
    values, bands = reference[rows], reference.shape[1]
    errors = {bank: relative_l2(values, bank(samples, rows, bands)) for bank in _usual()}
    bank = min(errors, key=lambda each: errors[each])
    return bank if errors[bank] <= max(allowed, _ROUNDING) else None


def _spread_rows(count: int, samples: int) -> Rows:
    """Returns rows to try, most of them within the sound: a port may pad it to 30 seconds."""
    inside = max(min(count, samples // SHIFT), 1)
    behind = np.linspace(inside, count - 1, _TRIED_BEHIND if inside < count else 0)
    return np.unique(np.concatenate([np.linspace(0, inside - 1, _TRIED_ROWS), behind]).round().astype(int))


def _found(scene: Scene, samples: np.ndarray, rows: Rows, reference_bank: Bank) -> tuple[Bank, int] | None:
    """Returns the filter bank of the candidate, and the row from which on it is that; None if it is not found."""
    candidate, bands = scene.candidate, scene.reference.shape[1]
    shifts = _shifts(len(samples), len(candidate)) if len(candidate) != len(scene.reference) else []
    window = reference_bank.window
    most = float(candidate.max())
    for begin, is_fine, first in (
        (reference_bank, False, 0),
        (replace(LIBRARY, window=window), False, 0),
        (LIBRARY, False, 0),
        (_with_decades(WHISPER, most), False, 0),
        (replace(SPEECH_FEATURES, window=window), False, 0),
        (reference_bank, True, 0),
        (reference_bank, True, 1),  # what stands before the sound is in the first row only
    ):
        some_rows = rows[rows >= first]
        if not len(some_rows):
            continue
        values = np.asarray(candidate[some_rows], np.float64)

        def error_of(bank: Bank, some_rows: Rows = some_rows, values: np.ndarray = values) -> float:
            return relative_l2(values, bank(samples, some_rows, bands))

        def changes(bank: Bank, is_fine: bool = is_fine, values: np.ndarray = values) -> Iterator[Bank]:
            yield from _changes(bank, (float(values.min()), most), shifts)
            if is_fine:
                yield from _fine_changes(bank, error_of)

        bank = _nearest(begin, error_of, changes, scene.allowed)
        if bank is not None:
            return bank, first
    return None


def _nearest(
    bank: Bank, error_of: Callable[[Bank], float], changes: Callable[[Bank], Iterator[Bank]], allowed: float
) -> Bank | None:
    """Returns the filter bank that one change after another leads to; None if it is not the candidate's."""
    error = error_of(bank)
    for _ in range(_MAX_CHANGES):
        if error <= allowed:
            return bank
        errors = [(error_of(each), each) for each in changes(bank)]
        least_error, nearest_bank = min(errors, key=lambda each: each[0])
        if not least_error <= _NEARER * error:
            return None
        bank, error = nearest_bank, least_error
    return bank if error <= allowed else None


def _usual() -> list[Bank]:
    """Returns the filter banks that a reference has."""
    return [
        replace(Bank(), window=window, scale=scale, **where)
        for window in ("hamming", "povey", "hanning")
        for scale in (INT16_SCALE, 1.0)
        for where in (dict[str, Any](), {"start": -120, "edges": "symmetric"})
    ]


def _shifts(samples: int, frames: int) -> list[int]:
    """Returns the distances between frames that give so many of them, for windows of up to `_LONGEST` samples."""
    least = max((samples - _LONGEST) // frames, _MIN_SHIFT)
    most = min(samples // max(frames - 1, 1) + 1, _MAX_SHIFT)
    return [shift for shift in range(least, most + 1) if shift != SHIFT]


def _with_decades(bank: Bank, most: float) -> Bank:
    """Returns the filter bank with the floor that its decades and the largest value of all give."""
    return replace(bank, floor=energy_of(most, bank.log) / 10**bank.decades) if bank.decades else bank


def _changes(bank: Bank, extremes: tuple[float, float], shifts: list[int]) -> Iterator[Bank]:
    """Yields each choice changed by itself, and some that often change together.

    Args:
        extremes: the least value of the tried rows of the candidate, and the largest of all its rows.
    """
    least, most = extremes
    choices: dict[str, tuple[Any, ...]] = {
        "window": ("hamming", "hanning", "povey", "rectangular", "blackman"),
        "periodic": (True, False),
        "length": _LENGTHS,
        "points": (POINTS, 400, 1024),
        "scale": (INT16_SCALE, 1.0, 32767.0),
        "remove_dc": (True, False),
        "dc_last": (True, False),
        "preemphasis": (PREEMPHASIS, 0.0, 0.95, 0.98, 0.9, 1.0),
        "times": (1, 2),
        "whole": (True, False),
        "first_kept": (True, False),
        "low": _LOWS,
        "high": _HIGHS,
        "mel": SCALES,
        "straight": (True, False),
        "area": (True, False),
        "corners": tuple(_CORNERS),
        "power": (2, 1),
        "divided": (True, False),
        "floor": (FLOOR, 1.0, 1e-10, SPEECH_FEATURES.floor, energy_of(least, bank.log)),
        "added": (0.0, *_ADDED),
        "log": tuple(LOGARITHMS),
    }
    for name, values in choices.items():
        for value in values:
            if value != getattr(bank, name):
                changed = _with(bank, name, value)
                yield replace(changed, decades=0.0) if name == "floor" else _with_decades(changed, most)
    for log in LOGARITHMS:
        yield _with_decades(replace(bank, log=log, decades=WHISPER.decades), most)
    # Either change alone may lead away from the candidate.
    pairs = [(low, high) for low in _LOWS for high in _HIGHS if low != bank.low and high != bank.high]
    yield from (replace(bank, low=low, high=high) for low, high in pairs)
    yield from (replace(bank, floor=0.0, added=added) for added in _ADDED if bank.floor)
    yield from (replace(bank, length=each, points=each) for each in (256, 320, 480))
    yield from (replace(bank, low=0.0, corners=each) for each in _CORNERS if each != bank.corners)
    for mel in SCALES:
        yield from (replace(bank, mel=mel, **also) for also in _WITH_SCALE)
    lengths = (bank.length, *_LENGTHS)
    yield from (replace(bank, shift=shift, length=length) for shift in shifts for length in dict.fromkeys(lengths))
    for start in (0, -200, -120, -80, -160, -256, 56, 80, 160):
        if start != bank.start:
            yield replace(bank, start=start)
    for edges in ("zeros", "symmetric", "reflect", "reflect in front") if bank.start < 0 else ():
        if edges != bank.edges:
            yield replace(bank, edges=edges)


def _with(bank: Bank, name: str, value: Any) -> Bank:
    return replace(bank, **{name: value})


def _fine_changes(bank: Bank, error_of: Callable[[Bank], float]) -> Iterator[Bank]:
    """Yields pre-emphases, and the starts of frames and the lengths of windows around those that come nearest."""
    yield from (replace(bank, preemphasis=each) for each in _PREEMPHASES if each != bank.preemphasis)
    for name, values in (
        ("start", range(-_FARTHEST, _FARTHEST + 1, _STEP)),
        ("length", range(_STEP, bank.points, _STEP)),
    ):
        banks = {value: _with(bank, name, value) for value in values}
        nearest = sorted(values, key=lambda value: error_of(banks[value]))[:_NEAREST]
        around = {value + off for value in nearest for off in range(-_STEP, _STEP) if value + off > min(values)}
        yield from (_with(bank, name, value) for value in sorted(around - {getattr(bank, name)}))


def _bank_difference(reference_bank: Bank, bank: Bank) -> str:
    """Returns the choices that differ, as a sentence."""
    candidate_words, reference_words = _words(bank), _words(reference_bank)
    differ = [name for name in candidate_words if candidate_words[name] != reference_words[name]]
    candidate_choices, reference_choices = (
        enumerated([words[name] for name in differ]) for words in (candidate_words, reference_words)
    )
    return f"the filter bank has {candidate_choices}, where the reference has {reference_choices}"


def _words(bank: Bank) -> dict[str, str]:
    edge_values = {
        "zeros": "zeros",
        "symmetric": "the mirrored sound",
        "reflect": "the mirrored sound without its last sample",
        "reflect in front": "the mirrored sound before it and zeros behind it",
    }
    floor = f"energies of at least {bank.floor:.4g}" if bank.floor else "energies without a floor"
    if bank.decades:
        floor = f"energies of at least 1e-{bank.decades:g} of the loudest"
    frame_start = f"frames from sample {bank.start} on"
    return {
        "window": f"a {bank.window} window",
        "periodic": f"a {'periodic' if bank.periodic else 'symmetric'} window",
        "length": f"a window of {bank.length} samples",
        "shift": f"a frame every {bank.shift} samples",
        "points": f"a Fourier transform of {bank.points} points",
        "start": frame_start + (f" with {edge_values[bank.edges]} beyond the ends" if bank.start < 0 else ""),
        "scale": f"samples of full scale {bank.scale:g}",
        "remove_dc": f"frames {'without' if bank.remove_dc else 'with'} their mean",
        "dc_last": f"the mean removed {'after' if bank.dc_last else 'before'} pre-emphasis",
        "preemphasis": f"the pre-emphasis {bank.preemphasis:g}",
        "times": f"pre-emphasis {'twice' if bank.times == 2 else 'once'}",
        "whole": f"pre-emphasis of {'the whole sound' if bank.whole else 'each frame'}",
        "first_kept": f"the first sample of a frame {'without' if bank.first_kept else 'with'} pre-emphasis",
        "low": f"its lowest band from {bank.low:.7g} Hz on",
        "high": f"its highest band up to {bank.high:.8g} Hz",
        "mel": scale_words(bank.mel),
        "straight": f"triangles over {'Hz' if bank.straight else 'mel'}",
        "area": f"triangles of one {'area' if bank.area else 'height'}",
        "corners": f"triangles {_CORNERS[bank.corners]}",
        "power": "powers" if bank.power == 2 else "magnitudes",
        "divided": f"energies {'' if bank.divided else 'not '}divided by the points of the Fourier transform",
        "floor": floor,
        "added": f"energies plus {bank.added:.4g}" if bank.added else "energies without an addend",
        "log": _LOGARITHM_WORDS[bank.log],
    }
