"""The search itself: one frame of a batch of utterances after another, with numpy."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from workbench.decoding.ctc_beam.candidates import Extensions, Stays
from workbench.decoding.ctc_beam.extensions import Extender
from workbench.decoding.ctc_beam.knowledge import Knowledge
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_beam.rows import (
    BLANK_MASS,
    HISTORY,
    LANGUAGE,
    LAST,
    MASS,
    NEURAL_STATE,
    PARENT,
    PREFIX,
    SPELLING,
    TOKEN_MASS,
    TOKEN_STATE,
    WORD_STATE,
    Rows,
)
from workbench.decoding.ctc_beam.selection import LOWEST, Chosen, choose, floor_of
from workbench.decoding.ctc_beam.word_extensions import WordExtender


class Observer(Protocol):
    """Watches a search. It sees every candidate, so the search is slower with it, and no different."""

    def frame(self, rows: Rows, stays: Stays, new: Extensions, chosen: Chosen) -> None:
        """Is called after the choice of each frame, before the rows change."""
        ...

    def after(self, rows: Rows) -> None:
        """Is called when the rows have changed."""
        ...


class Search:
    """Takes beams from frame to frame.

    Args:
        vocabulary: number of tokens, with the blank.
        blank: its id.
        options: the width of the search.
        knowledge: the parts of the score that language decides.
        size: hypotheses that live after a frame.
    """

    def __init__(self, vocabulary: int, blank: int, options: SearchOptions, knowledge: Knowledge, size: int):
        self._vocabulary, self._blank, self._options = vocabulary, blank, options
        self._knowledge, self._size = knowledge, size
        self._add = np.logaddexp if options.recombination == "sum" else np.maximum
        self._extender = Extender(vocabulary, knowledge, size)
        if knowledge.spelling is not None:
            self._extender = WordExtender(vocabulary, knowledge, size, knowledge.spelling)
        self._tokens = np.ones(vocabulary, dtype=bool)
        self._tokens[blank] = False

    def begin(self, utterances: int) -> Rows:
        """Returns beams with the empty hypothesis alone."""
        knowledge = self._knowledge
        words = 1 if knowledge.lexicon is None else len(knowledge.lexicon.words)
        rows = Rows(utterances, self._vocabulary, words)
        models = (
            (TOKEN_STATE, knowledge.token_lm),
            (WORD_STATE, knowledge.word_lm),
            (NEURAL_STATE, knowledge.neural_lm),
        )
        for column, model in models:
            rows.ints[column] = 0 if model is None else model.start
        return rows

    def step(self, rows: Rows, log_probs: np.ndarray, observer: Observer | None = None) -> None:
        """Takes the first utterances of the beams over one frame.

        Args:
            rows: the beams; they change.
            log_probs: float64 [utterances, vocabulary], contiguous.
            observer: sees what happens.
        """
        count, capacity = len(log_probs), rows.capacity
        stays = self._stay(rows, log_probs)
        scores = stays.score.reshape(count, capacity)
        floor = floor_of(scores, self._size, self._options.threshold)
        rows.crowded[:count] |= floor > LOWEST  # the extender may leave out what it could hold
        if observer is not None:
            floor = np.full(count, LOWEST)
        new = self._extender.extend(rows, stays, log_probs, floor, self._allowed(log_probs))
        whole = None
        if self._knowledge.spelling is not None:
            whole = self._knowledge.spelling.whole[rows.ints[SPELLING, :count]]
        utterances = new.parents // capacity
        chosen = choose(
            scores,
            new.score,
            utterances,
            self._size,
            self._options.threshold,
            whole,
            self._options.nbest,
        )
        if observer is not None:
            observer.frame(rows, stays, new, chosen)
        rows.crowded[:count] |= chosen.cut > -np.inf
        self._go_on(rows, stays, new.take(chosen.comes), utterances[chosen.comes], chosen.stays)
        if observer is not None:
            observer.after(rows)

    def _allowed(self, log_probs: np.ndarray) -> np.ndarray:
        """Returns the tokens that may be appended, bool [utterances, vocabulary] or [vocabulary]."""
        most = self._options.tokens_per_frame
        if most is None or most >= self._vocabulary - 1:
            return self._tokens
        without = np.where(self._tokens, log_probs, -np.inf)
        best = np.argsort(-without, axis=1, kind="stable")[:, :most]
        allowed = np.zeros(log_probs.shape, dtype=bool)
        np.put_along_axis(allowed, best, True, axis=1)
        return allowed & self._tokens

    def _stay(self, rows: Rows, log_probs: np.ndarray) -> Stays:
        """Returns the rows after a frame of blanks or repeats, joined by the alignments of their parents."""
        count, capacity = len(log_probs), rows.capacity
        ints = rows.ints.reshape(len(rows.ints), -1)[:, : count * capacity]
        floats = rows.floats.reshape(len(rows.floats), -1)[:, : count * capacity]
        blank_mass, mass, last = floats[BLANK_MASS], floats[MASS], ints[LAST]
        utterance = np.repeat(np.arange(count), capacity)
        repeat = log_probs[utterance, last]  # of an empty hypothesis: of any token, as its mass there is -inf
        stay_blank = mass + np.repeat(log_probs[:, self._blank], capacity)
        stay_token = floats[TOKEN_MASS] + repeat
        parent = rows.rows_of(ints[PARENT])
        joined = np.flatnonzero(parent >= 0)
        if len(joined):
            parent = parent[joined] + utterance[joined] * capacity
            before = np.where(last[parent] == last[joined], blank_mass[parent], mass[parent])
            stay_token[joined] = self._add(stay_token[joined], before + repeat[joined])
        stay = self._add(stay_blank, stay_token)
        return Stays(stay_blank, stay_token, stay, stay + floats[LANGUAGE], joined)

    def _go_on(self, rows: Rows, stays: Stays, new: Extensions, utterances: np.ndarray, keep: np.ndarray) -> None:
        """Writes the chosen hypotheses into the rows."""
        count, capacity = keep.shape
        many = np.bincount(utterances, minlength=count)
        parents = new.parents
        ints = rows.ints.reshape(len(rows.ints), -1)[:, parents]
        floats = rows.floats.reshape(len(rows.floats), -1)[:, parents]
        ints[PARENT], ints[LAST] = ints[PREFIX], new.tokens
        if self._knowledge.spelling is not None:
            completed = np.flatnonzero(new.word >= 0)
            new.ints[HISTORY] = ints[HISTORY].copy()
            new.ints[HISTORY][completed] = rows.histories.number(ints[HISTORY][completed], new.word[completed])
        for name, column in new.ints.items():
            ints[name] = column
        for name, column in new.floats.items():
            floats[name] = column
        floats[BLANK_MASS], floats[TOKEN_MASS], floats[MASS] = new.blank_mass, new.token_mass, new.mass
        rows.floats[BLANK_MASS, :count] = stays.blank_mass.reshape(count, capacity)
        rows.floats[TOKEN_MASS, :count] = stays.token_mass.reshape(count, capacity)
        rows.floats[MASS, :count] = stays.mass.reshape(count, capacity)
        gone = ~keep & (rows.ints[PREFIX, :count] >= 0)
        if gone.any():
            rows.drop(gone)
            if self._knowledge.spelling is not None:
                rows.find_again()
        if len(parents):
            rows.grow(int((keep.sum(axis=1) + many).max()))
            at, free = np.nonzero(rows.ints[PREFIX, :count] < 0)
            free_counts = np.bincount(at, minlength=count)
            rank = np.arange(len(parents)) - (np.cumsum(many) - many)[utterances]
            place = free[(np.cumsum(free_counts) - free_counts)[utterances] + rank]
            rows.put(utterances, place, ints, floats)
        rows.forget()
