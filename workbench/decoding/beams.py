"""Beam search over a language model's logits with numpy, for runtimes whose logits come as arrays.

It finds the same hypotheses as transformers' search with the same options. It computes no logits: the caller continues
the hypotheses that the search names and passes the logits of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.core.softmax import log_softmax
from workbench.decoding.generation import Decoding
from workbench.decoding.sampling import forbid, penalise

FORBIDDEN_SCORE = -1e9  # the score of a forbidden continuation; finite, as in transformers


@dataclass(frozen=True)
class Continuation:
    """The next hypotheses: each is a parent (its index among the previous ones) and a token."""

    parents: np.ndarray  # int64 [beams]
    tokens: np.ndarray  # int64 [beams]


@dataclass(frozen=True)
class Candidates:
    """The likeliest continuations of all hypotheses, best first, before any is dropped.

    Of equal scores, the lower parent comes first, then the lower token.
    """

    scores: np.ndarray  # float32 [candidates], sums of log-probabilities
    parents: np.ndarray  # int64 [candidates]
    tokens: np.ndarray  # int64 [candidates]


class BeamSearch:
    """The search for one row of a batch.

    Args:
        limit: most new tokens.
    """

    def __init__(self, decoding: Decoding, limit: int):
        self.decoding = decoding
        self.limit = limit
        self.best: list[int] = []  # the likeliest hypothesis so far; after the search, its result
        beams = decoding.beam_size
        self._tokens = np.empty((beams, 0), dtype=np.int64)
        self._scores = np.full(beams, FORBIDDEN_SCORE, dtype=np.float32)
        self._scores[0] = 0.0  # all hypotheses start equal, so only the first continues
        self._finished: list[tuple[float, list[int]]] = []  # the best finished hypotheses, best first
        self._last_choice: tuple[np.ndarray, np.ndarray] | None = None  # tokens and all scores of the last choice
        self.candidates: Candidates | None = None  # the likeliest continuations of the last choice

    @property
    def finished(self) -> np.ndarray:
        """The scores of the best finished hypotheses, with the length penalty, best first: float64 [at most beams]."""
        return np.array([score for score, _ in self._finished], dtype=np.float64)

    def continue_with(self, hypotheses: Continuation) -> None:
        """Continues with these hypotheses in place of those that the last `advance` returned."""
        assert self._last_choice is not None
        tokens, scores = self._last_choice
        self._tokens = np.column_stack([tokens[hypotheses.parents], hypotheses.tokens])
        self._scores = scores[hypotheses.parents, hypotheses.tokens]

    def advance(self, logits: np.ndarray) -> Continuation | None:
        """Returns the next hypotheses, from the logits [beams, vocabulary] of the present ones; None at the end."""
        beams, vocabulary = logits.shape
        table = self._next_scores(logits)
        self._last_choice = self._tokens, table
        scores = table.ravel()
        # Enough candidates remain even if every hypothesis ends with every stop token.
        count = min(max(2, 1 + len(self.decoding.stop_ids)) * beams, scores.size)
        likeliest = np.flatnonzero(~(scores < np.partition(scores, -count)[-count]))
        likeliest = likeliest[np.argsort(-scores[likeliest], kind="stable")][:count]
        scores, parents, tokens = scores[likeliest], likeliest // vocabulary, likeliest % vocabulary
        self.candidates = Candidates(scores, parents, tokens)
        sequences = np.column_stack([self._tokens[parents], tokens])
        length = sequences.shape[1]
        ends = np.isin(tokens, self.decoding.stop_ids) | (length >= self.limit)
        self.best = sequences[0].tolist()
        for score, sequence in zip(scores[:beams][ends[:beams]], sequences[:beams][ends[:beams]], strict=True):
            self._add_finished(float(score) / length**self.decoding.length_penalty, sequence.tolist())
        scores = np.where(ends, scores + np.float32(FORBIDDEN_SCORE), scores)
        running = np.argsort(-scores, kind="stable")[:beams]
        self._scores, self._tokens = scores[running], sequences[running]
        if ends.all() or not self._may_improve(length):
            self.best = self._finished[0][1]
            return None
        return Continuation(parents[running], tokens[running])

    def _next_scores(self, logits: np.ndarray) -> np.ndarray:
        """Returns the scores of all continuations [beams, vocabulary]."""
        scores = log_softmax(logits.astype(np.float64)).astype(np.float32)
        if self.decoding.repetition_penalty != 1.0:
            penalise(scores, self._tokens, self.decoding.repetition_penalty)
        if self._tokens.shape[1] < self.decoding.min_new_tokens:
            forbid(scores, self.decoding.stop_ids)
        total: np.ndarray = scores + self._scores[:, None]
        return total

    def _add_finished(self, score: float, sequence: list[int]) -> None:
        """Stores a finished hypothesis if it is one of the best."""
        self._finished.append((score, sequence))
        self._finished.sort(key=lambda each: -each[0])  # a stable sort: equal scores keep their order
        del self._finished[self.decoding.beam_size :]

    def _may_improve(self, length: int) -> bool:
        """Returns whether the likeliest running hypothesis would be among the best if it ended now."""
        worst = self._finished[-1][0] if len(self._finished) == self.decoding.beam_size else FORBIDDEN_SCORE
        return float(self._scores[0]) / length**self.decoding.length_penalty > worst
