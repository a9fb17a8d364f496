"""The search itself: it takes the beams of a batch of utterances from frame to frame, with numpy.

Most frames change no beam but its masses. They cost little, so an utterance alone goes through them fast; the others
are the same work for one utterance as for several, so a batch shares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from workbench.decoding.ctc_beam.candidates import Extensions, UnextendedRows
from workbench.decoding.ctc_beam.extensions import Extender, Frame
from workbench.decoding.ctc_beam.knowledge import Knowledge
from workbench.decoding.ctc_beam.logits import Frames
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_beam.progress import Progress
from workbench.decoding.ctc_beam.rows import (
    BLANK_MASS,
    BOUND,
    HISTORY,
    LANGUAGE,
    LAST,
    LEXICON_STATE,
    MASS,
    NEURAL_STATE,
    PARENT,
    PREFIX,
    TOKEN_MASS,
    TOKEN_STATE,
    WORD_STATE,
    Rows,
)
from workbench.decoding.ctc_beam.selection import MIN_SCORE, Selection, choose, floor_of, surviving
from workbench.decoding.ctc_beam.word_extensions import WordExtender


class SearchObserver(Protocol):
    """Watches a search. It sees every candidate, so the search is slower, but its result is the same."""

    def frame(self, rows: Rows, unextended: UnextendedRows, extensions: Extensions, selection: Selection) -> None:
        """Is called after the choice of each frame, before the rows change."""
        ...

    def after_frame(self, rows: Rows) -> None:
        """Is called after the rows have changed."""
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
        # The share of the recordings that must wait. A neural model is costly, so it is asked once for all of them.
        self._patience = 0.75 if knowledge.neural_lm is None else 1.0
        self._extender = Extender(vocabulary, knowledge, size)
        if knowledge.automaton is not None:
            self._extender = WordExtender(vocabulary, knowledge, size, knowledge.automaton)

    def begin(self, utterances: int) -> Rows:
        """Returns beams with the empty hypothesis alone."""
        knowledge = self._knowledge
        words = 0 if knowledge.lexicon is None else len(knowledge.lexicon.words)
        rows = Rows(utterances, self._vocabulary, words)
        models = (
            (TOKEN_STATE, knowledge.token_lm),
            (WORD_STATE, knowledge.word_lm),
            (NEURAL_STATE, knowledge.neural_lm),
        )
        for column, model in models:
            rows.ints[column] = 0 if model is None else model.start
        if knowledge.bounded:
            rows.floats[BOUND] = knowledge.upper_bound(dict(enumerate(rows.ints)), rows.floats[LANGUAGE])
        return rows

    def run(self, rows: Rows, recordings: Sequence[Frames], observer: SearchObserver | None = None) -> None:
        """Takes the beams over all frames of some recordings.

        In a quiet frame no new hypothesis can reach the beam, and only the masses change. Each recording goes on over
        its quiet frames, and waits at a frame that is not quiet until enough of the others wait too. Then all that wait
        take this step at once. No number of a recording depends on the others.

        Args:
            rows: the beams; they change.
            recordings: one for each beam, the longest first.
            observer: sees what happens; for it, no frame is quiet.
        """
        progress = Progress(recordings, self._vocabulary, self._blank)
        pruned = False
        while progress.unfinished:
            running = progress.running[: progress.unfinished]
            unextended = self._unextended(rows, progress)
            floor = floor_of(unextended.score, self._size, self._options.threshold)
            if not pruned:  # what cannot reach the floor is left out
                rows.pruned[: progress.unfinished] |= running & (floor > MIN_SCORE)
                pruned = bool(rows.pruned.all())
            if observer is None:
                is_quiet = self._quiet(rows, progress, unextended, floor)
            else:
                floor[:], is_quiet = MIN_SCORE, np.zeros(len(floor), dtype=bool)
            advances, stopped = running & is_quiet, (running > is_quiet).nonzero()[0]
            has_changes = len(stopped) > 0 and len(stopped) >= self._patience * np.count_nonzero(running)
            if has_changes:
                frame = self._frame(rows, stopped, progress, unextended, floor)
            if not has_changes or len(stopped) < progress.unfinished:
                self._update_masses(rows, unextended, advances)
            if has_changes:
                self._extend(rows, frame, observer)
                advances = running
            progress.step(advances)

    def _update_masses(self, rows: Rows, unextended: UnextendedRows, advances: np.ndarray) -> None:
        """Moves the utterances in which `advances` [unfinished] is true over a frame without new tokens."""
        masses = rows.floats[: len(unextended.masses), : len(advances)]
        if advances.all():
            masses[:] = unextended.masses
        else:
            np.copyto(masses, unextended.masses, where=advances[:, None])

    def _unextended(self, rows: Rows, progress: Progress) -> UnextendedRows:
        """Returns the rows after a frame of blanks or repeats, joined by the alignments of their parents."""
        unfinished = progress.unfinished
        floats = rows.floats[:, :unfinished]
        masses = np.empty((3, unfinished, rows.capacity))
        blank_mass, token_mass, mass = masses
        np.add(floats[MASS], progress.blank_log_probs[:, None], out=blank_mass)
        self._add(floats[TOKEN_MASS], rows.parent_mass(unfinished), out=token_mass)
        # For an empty hypothesis, this is the log-probability of any token, because its mass here is -inf.
        token_mass += progress.token_log_probs(rows.ints[LAST, :unfinished])
        self._add(blank_mass, token_mass, out=mass)
        return UnextendedRows(masses, mass + floats[LANGUAGE])

    def _quiet(self, rows: Rows, progress: Progress, unextended: UnextendedRows, floor: np.ndarray) -> np.ndarray:
        """Returns for each next frame whether the beam keeps the same hypotheses, bool [unfinished]."""
        is_quiet = self._extender.quiet(rows, progress, unextended, floor)
        if self._may_prune(rows) and is_quiet.any():
            complete = self._complete(rows.ints[LEXICON_STATE, : progress.unfinished])
            is_kept = surviving(unextended.score, self._size, self._options.threshold, complete, self._options.nbest)
            is_quiet &= (is_kept | (unextended.score == -np.inf)).all(axis=1)
        return is_quiet

    def _may_prune(self, rows: Rows) -> bool:
        """Returns whether hypotheses may be dropped without new ones in their place."""
        return self._options.threshold is not None or rows.capacity > self._size

    def _complete(self, states: np.ndarray) -> np.ndarray | None:
        """Returns which rows have no unfinished word, in the shape of their states; None without a lexicon."""
        return None if self._knowledge.automaton is None else self._knowledge.automaton.complete.take(states)

    def _frame(
        self, rows: Rows, utterances: np.ndarray, progress: Progress, unextended: UnextendedRows, floor: np.ndarray
    ) -> Frame:
        """Returns what the extender must know about the next frames of some utterances."""
        if len(utterances) < len(floor):
            unextended, floor = unextended.of_utterances(utterances), floor.take(utterances)
        base = rows.floats[MASS].take(utterances, axis=0) + rows.floats[LANGUAGE].take(utterances, axis=0)
        if self._knowledge.automaton is not None:
            base -= self._knowledge.automaton.look_ahead.take(rows.ints[LEXICON_STATE].take(utterances, axis=0))
        log_probs = self._tokens(progress.frames(utterances))
        return Frame(
            rows,
            utterances,
            unextended,
            base,
            log_probs,
            progress.best_log_probs.take(utterances),
            floor,
            self._extender.cut(floor),
        )

    def _extend(self, rows: Rows, frame: Frame, observer: SearchObserver | None) -> None:
        """Moves some utterances over a frame that may change which hypotheses are in the beam."""
        extensions = self._extender.extend(frame)
        utterances, masses = frame.utterances, frame.unextended.masses
        if not len(extensions) and observer is None and not self._may_prune(rows):
            rows.floats[: len(masses), utterances] = masses
            return
        complete = None
        if self._knowledge.automaton is not None:
            complete = self._complete(rows.ints[LEXICON_STATE].take(utterances, axis=0))
        size, threshold = self._size, self._options.threshold
        chosen = choose(
            frame.unextended.score,
            extensions.score,
            extensions.utterances,
            size,
            threshold,
            complete,
            self._options.nbest,
        )
        if observer is not None:
            observer.frame(
                rows,
                UnextendedRows(masses.reshape(len(masses), -1), frame.unextended.score.ravel()),
                extensions,
                chosen,
            )
        rows.floats[: len(masses), utterances] = masses
        self._replace(rows, utterances, extensions.take(chosen.added), chosen)
        if observer is not None:
            observer.after_frame(rows)

    def _tokens(self, log_probs: np.ndarray) -> np.ndarray:
        """Returns log-probabilities [utterances, vocabulary] with -inf for tokens that may not be appended."""
        limit = self._options.tokens_per_frame
        if limit is None or limit >= self._vocabulary - 1:
            return log_probs
        best_tokens = np.argsort(-log_probs, axis=1, kind="stable")[:, :limit]
        allowed = np.full(log_probs.shape, -np.inf)
        np.put_along_axis(allowed, best_tokens, np.take_along_axis(log_probs, best_tokens, axis=1), axis=1)
        return allowed

    def _replace(self, rows: Rows, utterances: np.ndarray, extensions: Extensions, chosen: Selection) -> None:
        """Drops the hypotheses that were not chosen, and writes the chosen new ones into free rows."""
        ints = rows.ints.reshape(len(rows.ints), -1).take(extensions.parents, axis=1)
        floats = rows.floats.reshape(len(rows.floats), -1).take(extensions.parents, axis=1)
        ints[PARENT], ints[LAST] = ints[PREFIX], extensions.tokens
        if self._knowledge.automaton is not None:
            completed = np.flatnonzero(extensions.word >= 0)
            extensions.ints[HISTORY] = ints[HISTORY].copy()
            extensions.ints[HISTORY][completed] = rows.histories.number(
                ints[HISTORY][completed], extensions.word[completed]
            )
        for name, column in extensions.ints.items():
            ints[name] = column
        for name, column in extensions.floats.items():
            floats[name] = column
        floats[BLANK_MASS], floats[TOKEN_MASS], floats[MASS] = (
            extensions.blank_mass,
            extensions.token_mass,
            extensions.mass,
        )
        if self._knowledge.bounded:
            floats[BOUND] = self._knowledge.upper_bound(dict(enumerate(ints)), floats[LANGUAGE])
        rows.replace(utterances, chosen.kept, extensions.utterances, ints, floats)
        rows.pruned[utterances] |= chosen.cut > -np.inf
        rows.forget()
