"""Generates an answer of text and audio, step by step, with any runtime's network.

The loop knows phases, masks and draws. The network knows embeddings, keys and values.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.speech.evidence import Evidence, evidence_of
from workbench.speech.layout import SpeechLayout
from workbench.speech.masks import NOTHING, allowed, wanted
from workbench.speech.network import Scores, SpeechNetwork, SpeechState, Wanted
from workbench.speech.phases import Cursor, Kind, Phase
from workbench.speech.plan import AnswerPlan as AnswerPlan
from workbench.speech.sampling import draw, mixed, probability, uniforms

LENGTH = "length"


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


def answer_steps(
    network: SpeechNetwork,
    prompt: Sequence[Any],
    plan: AnswerPlan,
    probabilities: bool = False,
    evidence: bool = False,
) -> Generator[Step, None, str]:
    """Yields the positions of an answer as they are chosen, and returns why it has ended: stop or length.

    Closing the generator stops the work: nothing more is computed. The last position is not fed to the network. At the
    end of the network's context the answer ends as well, without a closing id.

    Args:
        prompt: parts for `SpeechNetwork.open`; the last one is an array of ids that ends with `<|assistant|>`.
        probabilities: also tell the probability of each id chosen, among those allowed and before temperature and
            top-k.
        evidence: also tell why each id was chosen, for comparisons.
    """
    *before, last = prompt
    feeder = _Feeder(network.open([*before, last[:-1]] if len(last) > 1 else before), network)
    feeder.add(last[-1])  # so that each call of the network has a row
    cursor, layout = Cursor(plan, network.layout), network.layout
    number = 0
    while (phase := cursor.phase).kind is not Kind.END:
        if phase.forced is not None:
            told = _unknown(layout) if probabilities else None
            nothing = Evidence.nothing(layout.streams) if evidence else None
            step = Step(layout.row(phase.forced), phase.kind, told, nothing)
        else:
            scores = feeder.scores(wanted(phase, layout))
            if scores is None:
                return LENGTH
            step = _chosen(scores, phase, plan, layout, number, probabilities, evidence)
        yield step
        cursor.advance(step.id)
        if step.phase is Kind.MARKER and step.id == layout.audio and plan.guided and not feeder.split():
            return LENGTH
        if step.phase is Kind.CLOSE:
            feeder.join()
        feeder.add(step.ids)
        number += 1
    return phase.finish


class _Feeder:
    """Collects rows and feeds them when logits are needed."""

    def __init__(self, state: SpeechState, network: SpeechNetwork):
        self._state, self._context = state, network.context
        self._waiting: list[np.ndarray] = []
        self._guided = False

    def add(self, row: np.ndarray) -> None:
        """Appends a row."""
        self._waiting.append(row)

    def scores(self, wanted: Wanted) -> Scores | None:
        """Returns the logits after the rows so far; None if the context has no room for them."""
        if self._state.length + len(self._waiting) > self._context:
            return None
        rows = np.array(self._waiting, dtype=np.int64)
        self._waiting = []
        return self._state.feed(rows, wanted)

    def split(self) -> bool:
        """Adds the null branch for the rows that follow; returns False if the context has no room for those before."""
        if self._waiting and self.scores(NOTHING) is None:
            return False
        self._state.split()
        self._guided = True
        return True

    def join(self) -> None:
        """Drops the null branch, if there is one."""
        if self._guided:
            self._state.join()
            self._guided = False


def _chosen(
    scores: Scores,
    phase: Phase,
    plan: AnswerPlan,
    layout: SpeechLayout,
    number: int,
    probabilities: bool,
    evidence: bool,
) -> Step:
    """Chooses the next position from its logits."""
    main, codec = mixed(scores, plan.cfg)
    ids = allowed(wanted(phase, layout).main)
    logits = main[None]
    if codec is not None:  # one table; rows without closing ids are shorter
        logits = np.full((layout.streams, max(len(main), layout.layer_size)), -np.inf, dtype=np.float32)
        logits[0, : len(main)], logits[1:, : layout.layer_size] = main, codec
    audio = phase.kind is Kind.AUDIO
    # As upstream, the model's choice of a modality is never drawn.
    temperature = {Kind.TEXT: plan.text_temperature, Kind.AUDIO: plan.audio_temperature}.get(phase.kind, 0.0)
    numbers = uniforms(plan.seed, number, len(logits)) if temperature else None
    drawn = draw(logits, temperature, plan.audio_top_k if audio else plan.text_top_k, numbers)
    columns = drawn.columns
    row = layout.row(int(ids[columns[0]]))
    kind = phase.kind
    if phase.closes and row[0] in (layout.eos, layout.eot):
        kind, columns = Kind.CLOSE, columns[:1]
    row[1 : len(columns)] = layout.pads[1 : len(columns)] + columns[1:]
    told = None
    if probabilities:
        told = _unknown(layout)
        told[: len(columns)] = probability(logits[: len(columns)], columns)
    why = evidence_of(logits, ids, drawn, layout, len(columns)) if evidence else None
    return Step(row, kind, told, why)


def _unknown(layout: SpeechLayout) -> np.ndarray:
    return np.full(layout.streams, np.nan)
