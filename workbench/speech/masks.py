"""The ids that may come next, on each stream.

A runtime computes the logits of these ids only, so the model cannot choose any other.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from workbench.speech.layout import SpeechLayout
from workbench.speech.network import NeededLogits
from workbench.speech.phases import Kind, Phase

NOTHING = NeededLogits(())


@lru_cache(maxsize=64)
def needed_logits(phase: Phase, layout: SpeechLayout) -> NeededLogits:
    """Returns the ids among which the model chooses in a phase; none if the next id is fixed.

    In a segment of audio, streams 1 and above have their own interval each, pads included. Elsewhere they hold the pad.
    """
    if phase.kind is Kind.END or phase.forced is not None:
        return NOTHING
    if phase.kind is Kind.MARKER:
        return NeededLogits(_joined([(layout.text, layout.text + 1), (layout.audio, layout.audio + 1)]))
    content = (layout.text_first, layout.text_end) if phase.kind is Kind.TEXT else layout.interval(0)
    closing = [(number, number + 1) for number in (layout.eos, layout.eot)] if phase.closes else []
    return NeededLogits(_joined([content, *closing]), codec=phase.kind is Kind.AUDIO)


def _joined(intervals: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Returns the intervals in order, those that touch as one."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(intervals):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return tuple(found)


@lru_cache(maxsize=64)
def allowed(intervals: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Returns the ids in the intervals, int64 [ids], in order. They name the columns of `Scores.main`. Read-only."""
    ids = np.concatenate([np.arange(first, end) for first, end in intervals] or [np.empty(0, dtype=np.int64)])
    ids.flags.writeable = False
    return ids
