"""Defines how a request for several streams enters the engine, and how its rows come back.

`SamplingParams.extra_args` of the request contain the plan of the answer, and the rows of the prompt that have more
than stream 0. The rows of the answer come back in the columns that vLLM has for the log-probabilities of alternative
tokens. This file imports neither vllm nor torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.speech.choosing import Step
from workbench.speech.evidence import ALTERNATIVES, Evidence
from workbench.speech.layout import SpeechLayout
from workbench.speech.phases import Kind, phase_after
from workbench.speech.plan import AnswerPlan

ARGUMENT = "workbench_speech"  # the entry of `extra_args`
BROKEN = -1.0  # in place of probabilities at the end of an answer whose logits are NaN
NUMBERS = 3  # numbers for each stream in the evidence of a choice, besides its alternatives
Span = tuple[int, np.ndarray]  # the position of the first row, and the rows of ids [n, streams]


@dataclass(frozen=True, eq=False)
class StreamRequest:
    """The streams part of one request."""

    plan: AnswerPlan
    spans: Sequence[Span] = ()  # the rows of the prompt that have streams 1 and above
    probabilities: bool = False
    evidence: bool = False
    prefix_ids: Sequence[int] = ()  # the ids of stream 0 of the answer's first positions, which the prompt ends with
    pair: str = ""  # with guidance: the name that this request and its partner share
    null: bool = False  # whether this one is the null branch of the pair

    def extra_entry(self) -> dict[str, Any]:
        """Returns the entry of `extra_args`. It contains plain values only."""
        spans = [[start, len(rows), rows.astype("<i4").tobytes()] for start, rows in self.spans]
        flags = {"probabilities": self.probabilities, "evidence": self.evidence}
        pair = {"begun": list(self.prefix_ids), "pair": self.pair, "null": self.null}
        return {"plan": asdict(self.plan), "spans": spans, **flags, **pair}


def read(extra: Mapping[str, Any] | None, layout: SpeechLayout, positions: int) -> StreamRequest | None:
    """Reads an entry that `StreamRequest.extra_entry` made. Returns None if the request asks for no streams.

    Args:
        positions: the length of the prompt.

    Raises `BadInput` for any other values, as the clients of a server can send them.
    """
    entry = (extra or {}).get(ARGUMENT)
    if entry is None:
        return None
    try:
        plan, spans = AnswerPlan(**entry["plan"]), entry["spans"]
        probabilities, evidence = bool(entry["probabilities"]), bool(entry["evidence"])
        row_spans = [
            (int(start), np.frombuffer(rows, "<i4").reshape(count, layout.streams)) for start, count, rows in spans
        ]
        prefix_ids, pair = [int(number) for number in entry.get("begun", ())], str(entry.get("pair", ""))
        phase_after(prefix_ids, plan, layout)
    except (TypeError, ValueError, KeyError) as error:
        raise BadInput(f"{ARGUMENT} of a request cannot be read: {type(error).__name__}") from error
    if plan.guided != bool(pair):
        raise BadInput(f"cfg is {plan.cfg:g}, and the request has {'a' if pair else 'no'} partner for guidance")
    if len(prefix_ids) > positions:
        raise BadInput(f"{ARGUMENT} has {len(prefix_ids)} positions of an answer in a prompt of {positions}")
    for start, rows in row_spans:
        if not 0 <= start <= start + len(rows) <= positions:
            raise BadInput(f"{ARGUMENT} has rows {start} to {start + len(rows)} of a prompt of {positions}")
        if rows.size and not 0 <= rows.min() <= rows.max() < layout.vocabulary:
            raise BadInput(f"{ARGUMENT} has ids from {rows.min()} to {rows.max()}; expected those of the vocabulary")
    return StreamRequest(plan, row_spans, probabilities, evidence, prefix_ids, pair, bool(entry.get("null")))


def pair_of(extra: Mapping[str, Any] | None) -> str:
    """Returns the name of the pair that a request belongs to; empty if it belongs to none."""
    entry = (extra or {}).get(ARGUMENT)
    return str(entry.get("pair", "")) if isinstance(entry, Mapping) else ""


def spans_of(rows: np.ndarray, start: int, layout: SpeechLayout) -> list[Span]:
    """Returns the parts of `rows` [n, streams] that have more than stream 0. `start` is the first row's position."""
    stream_rows = np.flatnonzero((rows[:, 1:] != layout.pad).any(axis=1))
    parts = np.split(stream_rows, np.flatnonzero(np.diff(stream_rows) > 1) + 1)
    return [(start + int(part[0]), rows[part[0] : part[-1] + 1]) for part in parts if len(part)]


def width(layout: SpeechLayout, evidence: bool) -> int:
    """Returns the number of columns of a position that comes back."""
    return layout.streams * (1 + (ALTERNATIVES + NUMBERS if evidence else 0))


def columns(step: Step, layout: SpeechLayout) -> tuple[np.ndarray, np.ndarray]:
    """Returns a position as (ids, numbers), both [columns].

    The first columns contain the id of each stream and its probability, stream 0 first. The columns of the evidence
    follow if the request asks for it. If several columns had the same id, vLLM would keep one of them. So each column
    has a range of ids of its own, in which -1 has a place too.
    """
    probabilities = step.probabilities
    ids, numbers = [step.ids], [np.full(len(step.ids), np.nan) if probabilities is None else probabilities]
    if (evidence := step.evidence) is not None:
        ids += [evidence.alternatives.ravel(), np.zeros(NUMBERS * len(step.ids), dtype=np.int64)]
        numbers += [evidence.logprobs.ravel(), evidence.temperatures, evidence.candidates, evidence.rooms]
    all_ids = np.concatenate(ids)
    all_ids[1:] += 1 + (layout.vocabulary + 1) * np.arange(1, len(all_ids))
    return all_ids, np.concatenate(numbers).astype(np.float32)


def position(ids: np.ndarray, numbers: np.ndarray, phase: Kind, request: StreamRequest, layout: SpeechLayout) -> Step:
    """Returns the position that is in these ids [columns] and numbers [columns]; the reverse of `columns`."""
    count = layout.streams
    ids = np.concatenate([ids[:1], ids[1:] % (layout.vocabulary + 1) - 1])
    evidence = None
    if request.evidence:
        end = count * (1 + ALTERNATIVES)
        temperatures, candidates, rooms = numbers[end:].astype(np.float64).reshape(NUMBERS, count)
        evidence = Evidence(
            ids[count:end].reshape(count, ALTERNATIVES),
            numbers[count:end].astype(np.float32).reshape(count, ALTERNATIVES),
            temperatures,
            candidates.astype(np.int64),
            rooms,
        )
    probabilities = numbers[:count].astype(np.float64) if request.probabilities else None
    return Step(ids[:count], phase, probabilities, evidence)
