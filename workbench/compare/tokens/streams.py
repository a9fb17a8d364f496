"""Compares parallel streams of ids [rows, streams], such as codec tokens: how many differ, where first, and possibly
why.

This file knows arrays and the layout of a vocabulary; it knows no traces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from workbench.compare.tokens.discrete import as_tokens
from workbench.core.phrases import counted
from workbench.speech.layout import SpeechLayout

_MIN_ROWS = 3  # rows in which a shifted stream must agree


@dataclass(frozen=True)
class StreamMeasures:
    """The difference of two tables of ids [rows, streams] with the same number of streams."""

    streams: int
    reference_rows: int
    candidate_rows: int
    errors: int  # ids that differ, and all ids of rows that only one side has
    error_rate: float  # share of the longer side's ids
    row: int | None  # of the first difference, row by row, each from stream 0 on; None without a difference
    stream: int | None
    reference: int | None  # the ids there; None where a side has ended
    candidate: int | None


def as_streams(stage: str, array: np.ndarray) -> np.ndarray:
    """Returns the ids as int64 [rows, streams]; raises `BadInput` if a value is not a whole number."""
    return as_tokens(stage, array).reshape(array.shape)


def measure_streams(reference: np.ndarray, candidate: np.ndarray) -> StreamMeasures:
    """Returns the measures of two tables [rows, streams]; raises `ValueError` if the numbers of streams differ."""
    streams = reference.shape[1]
    if candidate.shape[1] != streams:
        raise ValueError(f"{streams} and {candidate.shape[1]} streams")
    common = min(len(reference), len(candidate))
    longest = max(len(reference), len(candidate))
    differs = reference[:common] != candidate[:common]
    errors = int(differs.sum()) + (longest - common) * streams
    row = stream = None
    ids: list[int | None] = [None, None]
    if errors:
        positions = np.argwhere(differs)
        row, stream = map(int, positions[0]) if len(positions) else (common, 0)
        ids = [int(side[row, stream]) if row < len(side) else None for side in (reference, candidate)]
    rate = errors / max(longest * streams, 1)
    return StreamMeasures(streams, len(reference), len(candidate), errors, rate, row, stream, *ids)


def explain_streams(reference: np.ndarray, candidate: np.ndarray, layout: SpeechLayout | None) -> str | None:
    """Returns a possible cause of the difference: another delay, or ids of another stream; None if neither fits.

    Args:
        reference: ids [rows, streams], as the candidate's.
        layout: of the vocabulary, if the ids are global.
    """
    if layout is not None and (sentence := _foreign_ids(candidate, layout)):
        return sentence
    shifts = [_shift(reference[:, n], candidate[:, n]) for n in range(reference.shape[1])]
    if any(shift is None for shift in shifts) or not any(shifts):
        return None
    late_streams = [(n, shift) for n, shift in enumerate(shifts) if shift]
    distinct_shifts = {shift for _, shift in late_streams}
    subject = _streams_text(n for n, _ in late_streams)
    if len(distinct_shifts) == 1:
        return f"{subject} come{'s' if len(late_streams) == 1 else ''} {_shift_text(late_streams[0][1])}"
    listing = ", ".join(f"stream {n} {_shift_text(shift)}" for n, shift in late_streams)
    return f"the streams have another delay: {listing}"


def _foreign_ids(candidate: np.ndarray, layout: SpeechLayout) -> str | None:
    """Returns a sentence about ids outside their streams' intervals; None if there are none."""
    if candidate.shape[1] != layout.streams:
        return None
    layer_ids = candidate - layout.pads
    outside = (layer_ids < 0) | (layer_ids >= layout.layer_size)
    if not outside.any():
        return None
    row, stream = map(int, np.argwhere(outside)[0])
    number = int(candidate[row, stream])
    owner = (number - layout.codec_first) // layout.layer_size
    owner_name = f"stream {owner}" if 0 <= owner < layout.streams else "no stream"
    count = int(outside.sum())
    subject = (
        "1 id does not belong to its stream:" if count == 1 else f"{count} ids do not belong to their streams, first"
    )
    return f"{subject} {number} in row {row}, stream {stream}, which belongs to {owner_name}"


def _shift(reference: np.ndarray, candidate: np.ndarray) -> int | None:
    """Returns by how many rows a stream comes late, 0 if it is in its place; None if it holds other ids.

    Rows at the ends may be missing or different.
    """
    max_shift = min(len(reference), len(candidate)) // 2
    for shift in sorted(range(-max_shift, max_shift + 1), key=abs):
        reference_rows, candidate_rows = (
            (reference, candidate[shift:]) if shift > 0 else (reference[-shift:], candidate)
        )
        common = min(len(reference_rows), len(candidate_rows))
        if common >= _MIN_ROWS and np.array_equal(reference_rows[:common], candidate_rows[:common]):
            return shift
    return None


def _shift_text(shift: int) -> str:
    return f"{counted(abs(shift), 'row')} {'late' if shift > 0 else 'early'}"


def _streams_text(streams: Iterable[int]) -> str:
    numbers = list(streams)
    return f"stream {numbers[0]}" if len(numbers) == 1 else f"streams {', '.join(map(str, numbers))}"
