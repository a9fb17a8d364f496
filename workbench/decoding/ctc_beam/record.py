"""The record of a search: the beam after each frame, the pruned hypotheses, and where alignments merged.

Plain arrays, for a page or a script. A hypothesis has a number: its index in `SearchRecord.parents`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.decoding.ctc_beam.hypothesis import Hypothesis

MAX_FRAMES = 6000  # frames of a recorded search
MAX_ACTIVE, MAX_PRUNED = 64, 32  # hypotheses recorded for each frame


@dataclass(frozen=True)
class Scores:
    """The scores of some hypotheses during the search, best first; float64 [n] each, already weighted."""

    ids: np.ndarray  # int64 [n]: the number of each hypothesis
    acoustic: np.ndarray  # the alignments of the frames so far
    token_lm: np.ndarray
    word_lm: np.ndarray
    neural_lm: np.ndarray
    bonus: np.ndarray
    boost: np.ndarray  # with the credit for unfinished phrases, which is lost if they do not complete
    look_ahead: np.ndarray  # for the unfinished word; replaced by the word's own score when it completes

    @property
    def total(self) -> np.ndarray:
        """The score by which the search ranks, float64 [n]."""
        total: np.ndarray = (
            self.acoustic + self.token_lm + self.word_lm + self.neural_lm + self.bonus + self.boost + self.look_ahead
        )
        return total


@dataclass(frozen=True)
class FrameRecord:
    """What one frame did to the beam."""

    active: Scores  # at most MAX_ACTIVE
    pruned: Scores  # the best candidates that were dropped; at most MAX_PRUNED
    active_count: int
    pruned_count: int  # candidates with a probability above 0 that were dropped, recorded or not
    cut: float  # the score of the last hypothesis that was kept; pruned ones are below it
    merges: np.ndarray  # int64 [m, 2]: an active hypothesis, and the one whose alignments joined it in this frame


@dataclass(frozen=True)
class SearchRecord:
    """A search, frame by frame."""

    log_probs: np.ndarray  # float64 [frames, vocabulary]
    parents: np.ndarray  # int64 [hypotheses]: the hypothesis that it extends by one token; -1 for the empty one
    tokens: np.ndarray  # int64 [hypotheses]: its last token; -1 for the empty one
    words: tuple[tuple[str, ...], ...] | None  # the completed words of each hypothesis; None without a lexicon
    frames: tuple[FrameRecord, ...]
    hypotheses: tuple[Hypothesis, ...]  # the result, as `decode` returns it

    def tokens_of(self, number: int) -> tuple[int, ...]:
        """Returns the tokens of a hypothesis."""
        tokens: list[int] = []
        while self.parents[number] >= 0:
            tokens.append(int(self.tokens[number]))
            number = int(self.parents[number])
        return tuple(reversed(tokens))
