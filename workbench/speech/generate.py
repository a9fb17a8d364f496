"""Generates an answer of text and audio, step by step, with any runtime's network.

The loop knows phases, masks and draws. The network knows embeddings, keys and values.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from workbench.core.finite import check_logits
from workbench.speech.choosing import PendingPosition, chosen, forced
from workbench.speech.choosing import Step as Step
from workbench.speech.masks import NOTHING, needed_logits
from workbench.speech.network import NeededLogits, Scores, SpeechNetwork, SpeechState
from workbench.speech.phases import Cursor, Kind
from workbench.speech.plan import AnswerPlan as AnswerPlan
from workbench.speech.sampling import apply_guidance

LENGTH = "length"


def answer_steps(
    network: SpeechNetwork,
    prompt: Sequence[Any],
    plan: AnswerPlan,
    probabilities: bool = False,
    evidence: bool = False,
) -> Generator[Step, None, str]:
    """Yields each position of an answer when it is chosen, and returns why the answer ended: stop or length.

    If the caller closes the generator, nothing more is computed. The last position is not fed to the network. An answer
    that fills the network's context ends without a closing id. Raises `NotFinite` for logits that are NaN.

    Args:
        prompt: parts for `SpeechNetwork.open`; the last one is an array of ids that ends with `<|assistant|>`.
        probabilities: also return the probability of each chosen id among the allowed ids, before temperature and
            top-k.
        evidence: also return why each id was chosen, for comparisons.
    """
    *before, last = prompt
    feeder = _Feeder(network.open([*before, last[:-1]] if len(last) > 1 else before), network)
    feeder.add(last[-1])  # so that each call of the network has a row
    cursor, layout = Cursor(plan, network.layout), network.layout
    number = 0
    while (phase := cursor.phase).kind is not Kind.END:
        if phase.forced is not None:
            step = forced(phase, layout, probabilities, evidence)
        else:
            scores = feeder.scores(needed_logits(phase, layout))
            if scores is None:
                return LENGTH
            main, codec = apply_guidance(scores, plan.cfg)
            check_logits(main)
            if codec is not None:
                check_logits(codec)
            position = PendingPosition(phase, plan, number, probabilities, evidence)
            [step] = chosen(main[None], None if codec is None else codec[None], [position], layout)
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

    def scores(self, needed: NeededLogits) -> Scores | None:
        """Returns the logits after the rows so far; None if the context has no room for them."""
        if self._state.length + len(self._waiting) > self._context:
            return None
        rows = np.array(self._waiting, dtype=np.int64)
        self._waiting = []
        return self._state.feed(rows, needed)

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
