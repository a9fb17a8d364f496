"""Spans of a recording, and the limit on their length that a recogniser needs.

All boundaries lie on the 16 kHz sample grid, and neighbouring pieces share theirs, so cutting a recording by spans
neither loses nor repeats a sample. This file does not decide what is speech.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from workbench.audio.constants import FRAME_SHIFT, SAMPLE_RATE
from workbench.core.errors import BadInput

_PAUSE_SECONDS = 0.2  # a cut goes to the middle of the quietest part of this length
_MIN_CAP_SECONDS = 0.1
_BLOCK = 60 * SAMPLE_RATE  # samples whose levels are computed at a time: a long recording is not copied whole
_SILENCE = 1e-10  # mean square that counts as digital silence: -100 dB


@dataclass(frozen=True, order=True)
class Span:
    """A part of a recording, from `start` to `end` in seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def slice(self) -> slice:
        """The indices of the 16 kHz samples that the span covers."""
        return slice(round(self.start * SAMPLE_RATE), round(self.end * SAMPLE_RATE))


def frame_levels(samples: np.ndarray) -> np.ndarray:
    """Returns the level of each 10 ms of samples [n] in dB of full scale, float32 [ceil(n / 160)], at least -100.

    The level is that of the sound around the mean of the 10 ms, so that a constant offset has no level.
    """
    usable = len(samples) // FRAME_SHIFT * FRAME_SHIFT
    power = [
        samples[first : min(first + _BLOCK, usable)].reshape(-1, FRAME_SHIFT).var(axis=1)
        for first in range(0, usable, _BLOCK)
    ]
    if usable < len(samples):
        power.append(samples[usable:].var(keepdims=True))
    levels: np.ndarray = 10 * np.log10(np.maximum(np.concatenate([np.empty(0), *power]), _SILENCE))
    return levels.astype(np.float32)


def widened(spans: Sequence[Span], by: float, low: float, high: float) -> list[Span]:
    """Returns the spans, extended by `by` seconds at both ends, but not beyond `low` and `high`.

    `spans` are in order, do not overlap, and lie between `low` and `high`. Neighbours that would meet are cut at the
    middle of the gap between them.
    """
    edges = [(max(span.start - by, low), min(span.end + by, high)) for span in spans]
    wide = [list(edge) for edge in edges]
    for place, (one, two) in enumerate(pairwise(spans)):
        if edges[place][1] > edges[place + 1][0]:
            wide[place][1] = wide[place + 1][0] = (one.end + two.start) / 2
    return [Span(start, end) for start, end in wide]


def joined_short(spans: Sequence[Span], short: float, gap: float, longest: float) -> list[Span]:
    """Returns the spans; those shorter than `short` seconds are joined with neighbours up to `gap` seconds away.

    `spans` are in order and do not overlap. A joined span includes the gap and is at most `longest` seconds long.
    """
    joined: list[Span] = []
    for span in spans:
        before = joined[-1] if joined else None
        if (
            before is not None
            and min(before.seconds, span.seconds) < short
            and span.start - before.end <= gap
            and span.end - before.start <= longest
        ):
            joined[-1] = Span(before.start, span.end)
        else:
            joined.append(span)
    return joined


def between(spans: Sequence[Span], seconds: float) -> list[Span]:
    """Returns the gaps that the spans (in order and disjoint) leave in a recording of `seconds`."""
    edges = [0.0, *(edge for span in spans for edge in (span.start, span.end)), seconds]
    return [Span(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if end > start]


def cap_spans(
    spans: Sequence[Span],
    max_seconds: float = 30.0,
    loudness: np.ndarray | None = None,
    merge_gap: float | None = None,
) -> list[Span]:
    """Returns the same speech in spans of at most `max_seconds`.

    `spans` are in order and do not overlap. A span that is too long is cut where `loudness` [frames] is lowest in the
    later half of the allowed length. `loudness` has a value for each 10 ms, as `frame_levels` returns it; without it,
    the pieces are equal. With `merge_gap`, neighbours at most that many seconds apart
    become one span, gap included, as far as the limit allows. Raises `BadInput` for a limit below 0.1 s and
    `ValueError` for spans out of order.
    """
    if not max_seconds >= _MIN_CAP_SECONDS:
        raise BadInput(f"segments are capped at {max_seconds:g} s; expected at least {_MIN_CAP_SECONDS:g} s")
    cap = int(min(max_seconds, 1e9) * SAMPLE_RATE)
    curve = None if loudness is None else _smoothed(loudness)
    pieces: list[tuple[int, int]] = []
    for span in spans:
        start, end = span.slice.start, span.slice.stop
        if end < start or (pieces and start < pieces[-1][1]):
            raise ValueError(f"{span} ends before it starts or before the span in front of it")
        if end > start:
            pieces += _cut(start, end, cap, curve)
    if merge_gap is not None:
        pieces = _merge(pieces, cap, merge_gap * SAMPLE_RATE)
    return [Span(start / SAMPLE_RATE, end / SAMPLE_RATE) for start, end in pieces]


def _smoothed(curve: np.ndarray) -> np.ndarray:
    """Returns the mean around each frame: a pause is a better place to cut than one quiet frame inside a word."""
    width = max(1, round(_PAUSE_SECONDS * SAMPLE_RATE / FRAME_SHIFT)) | 1
    padded = np.pad(curve.astype(np.float64), width // 2, mode="edge") if len(curve) else np.zeros(width - 1)
    sums = np.concatenate([[0.0], np.cumsum(padded)])
    means: np.ndarray = (sums[width:] - sums[:-width]) / width
    return means


def _cut(start: int, end: int, cap: int, curve: np.ndarray | None) -> list[tuple[int, int]]:
    """Returns pieces of at most `cap` samples that cover start ... end."""
    pieces = []
    while end - start > cap:
        parts = -(-(end - start) // cap)
        at = start + -(-(end - start) // parts)
        if curve is not None:
            # Not before half the cap, so that pieces stay long, and not so late that a tiny piece remains.
            earliest, latest = start + cap // 2, min(start + cap, end - cap // 4)
            at = _quietest(curve, earliest, latest) or at
        pieces.append((start, at))
        start = at
    return [*pieces, (start, end)]


def _quietest(curve: np.ndarray, earliest: int, latest: int) -> int | None:
    """Returns the middle of the lowest frame (the last of equal ones) in the range; None without frames."""
    first, last = int(np.ceil(earliest / FRAME_SHIFT - 0.5)), int(np.floor(latest / FRAME_SHIFT - 0.5))
    part = curve[first : last + 1]
    if len(part) == 0:
        return None
    index = first + len(part) - 1 - int(np.argmin(part[::-1]))
    return min(max(round((index + 0.5) * FRAME_SHIFT), earliest), latest)


def _merge(pieces: list[tuple[int, int]], cap: int, gap: float) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in pieces:
        if merged and start - merged[-1][1] <= gap and end - merged[-1][0] <= cap:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
