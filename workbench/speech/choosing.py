"""Chooses the next position of several answers at once from their logits.

Each answer has its own seed and step, so its choices do not depend on the other answers. This file knows no network
and no order of phases: it gets the present phase of each answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.speech.evidence import Evidence, evidence_of
from workbench.speech.layout import SpeechLayout
from workbench.speech.masks import allowed, needed_logits
from workbench.speech.phases import Kind, Phase
from workbench.speech.plan import AnswerPlan
from workbench.speech.sampling import Draw, draw, probability, uniforms


@dataclass(frozen=True, eq=False)
class Step:
    """One position of an answer."""

    ids: np.ndarray  # int64 [streams]; streams 1 and above hold the pad except in a row of audio
    phase: Kind  # marker, text, audio or close
    probabilities: np.ndarray | None = None  # float64 [streams], of each id that the model chose; NaN for the others
    evidence: Evidence | None = None  # if it was asked for

    @property
    def id(self) -> int:
        """The id of stream 0."""
        return int(self.ids[0])


@dataclass(frozen=True)
class PendingPosition:
    """A position that the model chooses."""

    phase: Phase
    plan: AnswerPlan
    number: int  # of the position in its answer
    probabilities: bool = False  # also return the probability of each id
    evidence: bool = False  # also return why each id was chosen

    @property
    def manner(self) -> tuple[Phase, float, int]:
        """(phase, temperature, top-k), which must be the same for positions that are chosen together."""
        plan = self.plan
        if self.phase.kind is Kind.AUDIO:
            return self.phase, plan.audio_temperature, plan.audio_top_k
        # As in ESPnet, the model takes the likelier modality and does not draw.
        return self.phase, plan.text_temperature if self.phase.kind is Kind.TEXT else 0.0, plan.text_top_k


def forced(phase: Phase, layout: SpeechLayout, probabilities: bool = False, evidence: bool = False) -> Step:
    """Returns the position of a phase that leaves no choice."""
    assert phase.forced is not None
    id_probabilities = _unknown(layout) if probabilities else None
    return Step(
        layout.row(phase.forced), phase.kind, id_probabilities, Evidence.nothing(layout.streams) if evidence else None
    )


def chosen(
    main: np.ndarray, codec: np.ndarray | None, positions: Sequence[PendingPosition], layout: SpeechLayout
) -> list[Step]:
    """Returns the next position of each answer.

    Args:
        main: logits of stream 0, float32 [answers, ids that `masks.needed_logits` allows].
        codec: those of streams 1 and above [answers, streams - 1, layer size]; None outside of audio.
        positions: one for each answer; all have the same `manner`.
    """
    if len(positions) > 1 and any(each.evidence for each in positions):
        codecs = [None] * len(positions) if codec is None else [codec[n : n + 1] for n in range(len(positions))]
        return [chosen(main[n : n + 1], codecs[n], [each], layout)[0] for n, each in enumerate(positions)]
    phase, temperature, top_k = positions[0].manner
    ids = allowed(needed_logits(phase, layout).main)
    logits = main[:, None]
    if codec is not None:  # one table; rows without closing ids are shorter
        shape = len(positions), layout.streams, max(main.shape[1], layout.layer_size)
        logits = np.full(shape, -np.inf, dtype=np.float32)
        logits[:, 0, : main.shape[1]], logits[:, 1:, : layout.layer_size] = main, codec
    count = logits.shape[1]
    numbers = None
    if temperature:
        numbers = np.concatenate([uniforms(each.plan.seed, each.number, count) for each in positions])
    sampled = draw(logits.reshape(-1, logits.shape[2]), temperature, top_k, numbers)
    columns = sampled.columns.reshape(len(positions), count)
    return [
        _step(table, table_columns, ids, sampled, each, layout)
        for table, table_columns, each in zip(logits, columns, positions)
    ]


def _step(
    logits: np.ndarray,
    columns: np.ndarray,
    ids: np.ndarray,
    sampled: Draw,
    position: PendingPosition,
    layout: SpeechLayout,
) -> Step:
    """Returns the position of these columns of a table of logits [streams, ids]."""
    row = layout.row(int(ids[columns[0]]))
    kind = position.phase.kind
    if position.phase.closes and row[0] in (layout.eos, layout.eot):
        kind, columns = Kind.CLOSE, columns[:1]
    row[1 : len(columns)] = layout.pads[1 : len(columns)] + columns[1:]
    probabilities = None
    if position.probabilities:
        probabilities = _unknown(layout)
        probabilities[: len(columns)] = probability(logits[: len(columns)], columns)
    evidence = evidence_of(logits, ids, sampled, layout, len(columns)) if position.evidence else None
    return Step(row, kind, probabilities, evidence)


def _unknown(layout: SpeechLayout) -> np.ndarray:
    return np.full(layout.streams, np.nan)
