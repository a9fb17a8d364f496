"""Compares two answers of a conversation by position: where they first differ, and whether that choice was a near tie.

A position has one id in each stream. A text token or a special token is in stream 0 alone. The positions that follow
the same ids are comparable; after the first difference, the answers are different answers. This file knows the stages
of answers; it measures no arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from workbench.compare.presets import Tolerances
from workbench.compare.tokens.discrete import as_tokens
from workbench.compare.tokens.logits import Choice, choice_among, spread_of
from workbench.speech.layout import SPECIAL, SpeechLayout
from workbench.trace.trace import Trace

ROWS = "codec.rows"
LOGPROBS, ALTERNATIVES, ROOMS = "answer.logprobs", "answer.alternatives", "answer.rooms"
TEMPERATURES, CANDIDATES = "answer.temperatures", "answer.candidates"
SETTINGS = (TEMPERATURES, CANDIDATES)
"""Stages that hold how ids were chosen. No arithmetic changes them."""
FOLLOWING = ("codec.codes", "codec.latents", "codec.audio")  # stages that are made of the ids
MIN_NOISE = 1e-4  # of float32; under the preset `exact`, too, rounding may decide a near tie
_NO_ID = -1
_RUN = 3  # ids that must agree after an omitted id; one is enough after a special token


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of an answer."""

    table: np.ndarray  # int64 [positions, streams]; -1 where a stream is not in use
    audio: int  # the position of the first row of audio
    rows: int  # rows of audio

    def row(self, position: int) -> int | None:
        """Returns the row of audio at a position; None in text and at special tokens."""
        row = position - self.audio
        return row if 0 <= row < self.rows else None


@dataclass(frozen=True)
class FirstId:
    """The first id in which two answers differ, with the choice that decided it.

    If several streams differ at that position, it is the first stream without a near tie, or else the first stream.
    """

    position: int  # in the answer, from its first marker on
    row: int | None  # of the audio; None in text and at special tokens
    stream: int
    reference: int | None  # None if the answer has ended
    candidate: int | None
    reference_name: str  # the id in words
    candidate_name: str
    choice: Choice | None  # margins as natural logarithms of probabilities; None if a trace does not hold the choice
    near_tie: bool  # whether the tolerance's arithmetic explains every difference at that position
    change: str = ""  # what happened, if known: a side leaves an id out, or chooses an id that it finds unlikely

    @property
    def place(self) -> str:
        """Where it is, in words."""
        if self.row is None:
            return f"position {self.position} of the answer"
        return f"row {self.row} of the audio, stream {self.stream}"


def ids_of(trace: Trace) -> Ids | None:
    """Returns the ids of an answer of parallel streams; None if the trace holds none, or holds rows without tokens.

    The audio is at the place where the tokens equal stream 0 of the rows.
    """
    rows = _rows(trace)
    if rows is None or "tokens" not in trace:
        return None
    tokens = as_tokens("tokens", trace["tokens"])
    table = np.full((len(tokens), rows.shape[1]), _NO_ID, dtype=np.int64)
    table[:, 0] = tokens
    if not len(rows):
        return Ids(table, len(tokens), 0)
    for begin in np.flatnonzero(tokens[: len(tokens) - len(rows) + 1] == rows[0, 0]).tolist():
        if np.array_equal(tokens[begin : begin + len(rows)], rows[:, 0]):
            table[begin : begin + len(rows)] = rows
            return Ids(table, begin, len(rows))
    return None


def _rows(trace: Trace) -> np.ndarray | None:
    """Returns the rows of audio [rows, streams], an empty array for an answer without audio; None if it is unknown."""
    if ROWS in trace:
        rows = trace[ROWS]
        if rows.ndim != 2 or not rows.shape[1] or rows.dtype.kind not in "iuf":
            return None
        return as_tokens(ROWS, rows).reshape(rows.shape)
    alternatives = trace.get(ALTERNATIVES)
    return (
        None if alternatives is None or alternatives.ndim != 3 else np.empty((0, alternatives.shape[1]), dtype=np.int64)
    )


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of two traces."""

    reference: Ids
    candidate: Ids

    @property
    def equal_positions(self) -> int:
        """The number of positions before the first one that differs."""
        reference_table, candidate_table = self.reference.table, self.candidate.table
        common = min(len(reference_table), len(candidate_table))
        streams = min(reference_table.shape[1], candidate_table.shape[1])
        differing = np.flatnonzero(
            (reference_table[:common, :streams] != candidate_table[:common, :streams]).any(axis=1)
        )
        return int(differing[0]) if len(differing) else common

    @property
    def differ(self) -> bool:
        """Whether any id is different."""
        return not np.array_equal(self.reference.table, self.candidate.table)

    def comparable(self, stage: str) -> int | None:
        """Returns how many positions of a stage `answer.*` are comparable; None for other stages.

        A choice depends only on the ids before it. A value that is computed from an id depends on that id, too.
        """
        if not stage.startswith("answer."):
            return None
        return self.equal_positions + (stage in (LOGPROBS, *SETTINGS))


def answers_of(reference: Trace, candidate: Trace) -> Answers | None:
    """Returns the answers of two traces; None if one has none."""
    reference_ids, candidate_ids = ids_of(reference), ids_of(candidate)
    return None if reference_ids is None or candidate_ids is None else Answers(reference_ids, candidate_ids)


def same_answer(*traces: Trace) -> bool:
    """Returns whether all traces that hold an answer hold the same one."""
    answers = [ids for ids in map(ids_of, traces) if ids is not None]
    return all(np.array_equal(answers[0].table, each.table) for each in answers[1:])


def layout_of(meta: Mapping[str, Any]) -> SpeechLayout | None:
    """Returns the vocabulary's layout that a trace names; None if it names none, or one that cannot be right."""
    layout_fields = meta.get("layout")
    names = {each.name for each in fields(SpeechLayout)}
    if (
        not isinstance(layout_fields, Mapping)
        or set(layout_fields) != names
        or any(type(each) is not int for each in layout_fields.values())
    ):
        return None
    layout = SpeechLayout(**layout_fields)
    return layout if 0 < layout.streams < 1000 and layout.layer_size > 0 else None


def name_of(number: int | None, layout: SpeechLayout | None) -> str:
    """Returns an id in words, such as `<|assistant|>` or `code 17 of stream 3`."""
    if number is None or number == _NO_ID:
        return "the end" if number is None else "nothing"
    if layout is None:
        return str(number)
    for name in SPECIAL:
        if getattr(layout, name) == number:
            return f"<|{name}|>"
    stream, code = divmod(number - layout.codec_first, layout.layer_size)
    if 0 <= stream < layout.streams:
        return f"code {code - 1} of stream {stream}" if code else f"the pad of stream {stream}"
    return str(number)


def guidance_of(meta: Mapping[str, Any]) -> float:
    """Returns the factor by which classifier-free guidance raises independent errors of logits: 1 without guidance.

    Guidance is cfg * conditional + (1 - cfg) * null.
    """
    settings = meta.get("answer")
    cfg = settings.get("cfg") if isinstance(settings, Mapping) else None
    if isinstance(cfg, bool) or not isinstance(cfg, (int, float)) or not math.isfinite(cfg):
        return 1.0
    return max(math.hypot(cfg, cfg - 1), 1.0)


def first_id(reference: Trace, candidate: Trace, answers: Answers, tolerances: Tolerances) -> FirstId | None:
    """Returns the first id in which two answers differ; None if they do not."""
    if not answers.differ:
        return None
    position, layout = answers.equal_positions, layout_of(reference.meta) or layout_of(candidate.meta)
    tables = answers.reference.table, answers.candidate.table
    rows = [each[position] if position < len(each) else None for each in tables]
    if rows[0] is None or rows[1] is None:
        differing = [0]
    else:
        common = min(len(rows[0]), len(rows[1]))
        differing = np.flatnonzero(rows[0][:common] != rows[1][:common]).tolist() or [common]
    differences = []
    for stream in differing:
        ids = [None if row is None or stream >= len(row) else int(row[stream]) for row in rows]
        choice, is_near_tie = _choice(reference, candidate, position, stream, (ids[0], ids[1]), tolerances)
        change = _inserted_or_omitted_id(tables[0][:, 0], tables[1][:, 0], position, layout) if stream == 0 else ""
        for side, trace, number in zip(("reference", "candidate"), (reference, candidate), ids):
            likeliest = None if number is None else _likeliest_ids(trace, position, stream)
            if not change and likeliest and len(likeliest[0]) and number not in likeliest[0]:
                change = f"the {side}'s id is not among its own likeliest"
        differences.append(
            FirstId(
                position=position,
                row=answers.reference.row(position),
                stream=stream,
                reference=ids[0],
                candidate=ids[1],
                reference_name=name_of(ids[0], layout),
                candidate_name=name_of(ids[1], layout),
                choice=choice,
                near_tie=is_near_tie,
                change=change,
            )
        )
    return next((each for each in differences if not each.near_tie), differences[0])


def _inserted_or_omitted_id(
    reference_ids: np.ndarray, candidate_ids: np.ndarray, place: int, layout: SpeechLayout | None
) -> str:
    """Returns a phrase if one side has one id more and then both go on alike; else an empty text."""
    for longer, shorter, verb in (
        (reference_ids, candidate_ids, "leaves out"),
        (candidate_ids, reference_ids, "puts in"),
    ):
        if place >= len(longer):
            continue
        name = name_of(int(longer[place]), layout)
        run = longer[place + 1 : place + 1 + (1 if name.startswith("<|") else _RUN)]
        if len(run) and np.array_equal(shorter[place : place + len(run)], run) and len(longer) > len(shorter):
            return f"the candidate {verb} {name}"
    return ""


def _choice(
    reference: Trace,
    candidate: Trace,
    position: int,
    stream: int,
    ids: tuple[int | None, int | None],
    tolerances: Tolerances,
) -> tuple[Choice | None, bool]:
    """Returns the choice of a stream at a position, and whether it is a near tie."""
    likeliest = [_likeliest_ids(trace, position, stream) for trace in (reference, candidate)]
    reference_likeliest, candidate_likeliest = likeliest
    if reference_likeliest is None or candidate_likeliest is None or ids[0] is None or ids[1] is None:
        return None, False
    choice = choice_among(
        reference_likeliest,
        candidate_likeliest,
        (ids[0], ids[1]),
        _spread(reference, candidate, stream, reference_likeliest[1]),
    )
    if choice is None:
        return None, False
    noise = max(tolerances.preset.limits.relative_l2, MIN_NOISE) * guidance_of(reference.meta)
    heats = [_value(trace, TEMPERATURES, position, stream) for trace in (reference, candidate)]
    if not any(heats):
        return choice, choice.is_near_tie(noise)
    if not math.isclose(*heats, rel_tol=MIN_NOISE):
        return choice, False
    return choice, _is_near_tie_of_draws(reference, candidate, position, stream, choice, noise, heats[0])


def _is_near_tie_of_draws(
    reference: Trace, candidate: Trace, position: int, stream: int, choice: Choice, noise: float, temperature: float
) -> bool:
    """Returns whether rounding explains that the same random number drew two ids.

    Either the two ids are equally likely and change places in the order, or the number is near the end of an id's
    share. Errors of logits move such an end by at most half their size, divided by the temperature.
    """
    limit = 4 * math.sqrt(2) * noise * choice.spread
    is_lower_bound = choice.reference_at_least or choice.candidate_at_least
    if not is_lower_bound and max(abs(choice.reference_margin), abs(choice.candidate_margin)) <= limit:
        return True
    distances = [_value(trace, ROOMS, position, stream) for trace in (reference, candidate)]
    return bool(max(distances) <= limit / (2 * temperature))  # False if a trace does not hold it


def _likeliest_ids(trace: Trace, position: int, stream: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns (ids, log-probabilities) of the likeliest ids of a stream; None if the trace does not hold them."""
    if LOGPROBS not in trace or ALTERNATIVES not in trace:
        return None
    ids, logprobs = trace[ALTERNATIVES], trace[LOGPROBS]
    if ids.ndim != 3 or ids.shape != logprobs.shape or position >= len(ids) or stream >= ids.shape[1]:
        return None
    reported = ids[position, stream] >= 0
    return ids[position, stream][reported], logprobs[position, stream][reported].astype(np.float64)


def _value(trace: Trace, stage: str, position: int, stream: int) -> float:
    """Returns a number of a stage [positions, streams]; NaN if the trace does not hold it."""
    values = trace[stage] if stage in trace else np.empty((0, 0))
    inside = values.ndim == 2 and position < values.shape[0] and stream < values.shape[1]
    return float(values[position, stream]) if inside else math.nan if stage == ROOMS else 0.0


def _spread(reference: Trace, candidate: Trace, stream: int, logprobs: np.ndarray) -> float:
    """Returns the standard deviation of a stream's logits at the prompt's last position, or of the likeliest ids."""
    stage = "codec.logits" if stream else "logits"
    for trace in (reference, candidate):
        if stage not in trace or not len(trace[stage]):
            continue
        row = trace[stage][-1]
        if not stream and row.ndim == 1:
            return spread_of(row)
        if stream and row.ndim == 2 and stream <= len(row):
            return spread_of(row[stream - 1])
    return spread_of(logprobs)
