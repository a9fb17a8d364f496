"""What a request for an answer of several streams carries into the engine, and how its rows come back.

A request's `SamplingParams.extra_args` hold the plan of the answer, and those rows of the prompt that have more than
stream 0. Streams 1 and above come back as the alternatives of each token, which vLLM has for log-probabilities. This
file imports neither vllm nor torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.speech.layout import SpeechLayout
from workbench.speech.plan import AnswerPlan

ARGUMENT = "workbench_speech"  # the entry of `extra_args`
UNKNOWN = -1.0  # stands for the probability of an id that the model did not choose; JSON has no NaN
Span = tuple[int, np.ndarray]  # the first position, and rows of ids [n, streams]


@dataclass(frozen=True, eq=False)
class Asked:
    """How to answer one request."""

    plan: AnswerPlan
    spans: Sequence[Span] = ()  # the rows of the prompt that have streams 1 and above
    probabilities: bool = False

    def written(self) -> dict[str, Any]:
        """Returns the entry of `extra_args`, of plain values."""
        spans = [[start, len(rows), rows.astype("<i4").tobytes()] for start, rows in self.spans]
        return {"plan": asdict(self.plan), "spans": spans, "probabilities": self.probabilities}


def read(extra: Mapping[str, Any] | None, layout: SpeechLayout, positions: int) -> Asked | None:
    """Returns what `Asked.written` has written; None if a request asks for no streams.

    Args:
        positions: the length of the prompt.

    Raises `BadInput` for other values: a server passes on what its clients send.
    """
    given = (extra or {}).get(ARGUMENT)
    if given is None:
        return None
    try:
        plan, spans, told = AnswerPlan(**given["plan"]), given["spans"], given["probabilities"]
        found = [
            (int(start), np.frombuffer(rows, "<i4").reshape(count, layout.streams)) for start, count, rows in spans
        ]
    except (TypeError, ValueError, KeyError) as error:
        raise BadInput(f"{ARGUMENT} of a request cannot be read: {type(error).__name__}") from error
    if plan.guided:
        raise BadInput(f"cfg is {plan.cfg:g}, and an engine has no guidance; expected 1")
    for start, rows in found:
        if not 0 <= start <= start + len(rows) <= positions:
            raise BadInput(f"{ARGUMENT} has rows {start} to {start + len(rows)} of a prompt of {positions}")
        if rows.size and not 0 <= rows.min() <= rows.max() < layout.vocabulary:
            raise BadInput(f"{ARGUMENT} has ids from {rows.min()} to {rows.max()}; expected those of the vocabulary")
    return Asked(plan, found, bool(told))


def spans_of(rows: np.ndarray, start: int, layout: SpeechLayout) -> list[Span]:
    """Returns the stretches of rows [n, streams] that have more than stream 0; `start` is the first row's position."""
    used = np.flatnonzero((rows[:, 1:] != layout.pad).any(axis=1))
    parts = np.split(used, np.flatnonzero(np.diff(used) > 1) + 1)
    return [(start + int(part[0]), rows[part[0] : part[-1] + 1]) for part in parts if len(part)]


def columns(row: np.ndarray, probabilities: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns a position as (ids, numbers) of its token and alternatives, [streams] each."""
    if probabilities is None:
        return row, np.zeros(len(row), dtype=np.float32)
    known = np.where(np.isnan(probabilities), UNKNOWN, probabilities)
    return row, known.astype(np.float32)


def row_of(token: int, told: Mapping[int, float], layout: SpeechLayout) -> tuple[np.ndarray, np.ndarray]:
    """Returns (ids [streams], probabilities [streams]) of a position that came back.

    Args:
        token: its id of stream 0.
        told: numbers by id, of the token and its alternatives.
    """
    row, numbers = layout.row(token), np.full(layout.streams, math.nan)
    for number, value in told.items():
        stream = (number - layout.codec_first) // layout.layer_size
        if number == token:
            stream = 0
        elif not 1 <= stream < layout.streams:
            continue  # the pad of streams that are not in use
        else:
            row[stream] = number
        if value != UNKNOWN:
            numbers[stream] = value
    return row, numbers
