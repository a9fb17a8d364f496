"""Why the ids of an answer were chosen, position by position: what a comparison of two runtimes needs beside the ids.

The ids alone do not show a wrong temperature or a wrong mask. Where two answers differ, the ids do not show whether
both choices were equally likely. This file knows arrays of logits; it knows no network and no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.speech.layout import SpeechLayout
from workbench.speech.sampling import Draw, likeliest, log_total

ALTERNATIVES = 8  # likeliest ids of each stream that are kept


@dataclass(frozen=True, eq=False)
class Evidence:
    """The choices of one position. Where a stream chose nothing, ids are -1, and numbers NaN or 0."""

    alternatives: np.ndarray  # int64 [streams, ALTERNATIVES], the likeliest ids, likeliest first
    logprobs: (
        np.ndarray
    )  # float32 [streams, ALTERNATIVES], of these among the ids allowed, with guidance, before temperature
    temperatures: np.ndarray  # float64 [streams], that the draw used; 0 where the likeliest id was taken
    candidates: np.ndarray  # int64 [streams], ids among which the stream drew
    rooms: np.ndarray  # float64 [streams], how far the drawn number was from another choice; NaN without a draw

    @classmethod
    def nothing(cls, streams: int) -> Evidence:
        """Returns the evidence of a position where nothing was chosen."""
        return cls(
            np.full((streams, ALTERNATIVES), -1, dtype=np.int64),
            np.full((streams, ALTERNATIVES), np.nan, dtype=np.float32),
            np.zeros(streams),
            np.zeros(streams, dtype=np.int64),
            np.full(streams, np.nan),
        )


def evidence_of(logits: np.ndarray, main: np.ndarray, sampled: Draw, layout: SpeechLayout, chosen: int) -> Evidence:
    """Returns the evidence of a position.

    Args:
        logits: float32 [rows, columns], from which each stream was chosen; minus infinity for ids that it may not take.
        main: the ids of stream 0's columns. Columns of the others are the ids of their intervals.
        chosen: the number of streams that chose an id; a closing id is a choice of stream 0 alone.
    """
    evidence = Evidence.nothing(layout.streams)
    columns, values = likeliest(logits[:chosen], ALTERNATIVES)
    width = columns.shape[1]
    logprobs = values - log_total(logits[:chosen])
    valid = np.isfinite(values)
    ids = np.empty_like(columns)
    ids[0] = main[np.minimum(columns[0], len(main) - 1)]
    ids[1:] = columns[1:] + layout.pads[1:chosen, None]
    evidence.alternatives[:chosen, :width] = np.where(valid, ids, -1)
    evidence.logprobs[:chosen, :width] = np.where(valid, logprobs, np.nan)
    evidence.temperatures[:chosen] = sampled.temperatures[:chosen]
    evidence.candidates[:chosen] = sampled.candidates[:chosen]
    evidence.rooms[:chosen] = sampled.rooms[:chosen]
    return evidence


def stages_of(evidence: Sequence[Evidence]) -> dict[str, np.ndarray]:
    """Returns the evidence of all positions of an answer as stages of a trace, each [positions, streams, ...]."""
    names = ("logprobs", "alternatives", "temperatures", "candidates", "rooms")
    return (
        {f"answer.{name}": np.array([getattr(each, name) for each in evidence]) for name in names} if evidence else {}
    )
