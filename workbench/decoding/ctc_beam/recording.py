"""Records a search while it runs. The record's form is in `record.py`."""

from __future__ import annotations

import numpy as np

from workbench.decoding.ctc_beam.candidates import Extensions, UnextendedRows
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.knowledge import Columns, Knowledge
from workbench.decoding.ctc_beam.record import MAX_ACTIVE, MAX_PRUNED, FrameRecord, Scores, SearchRecord
from workbench.decoding.ctc_beam.rows import (
    EARNED,
    HISTORY,
    LENGTH,
    LEXICON_STATE,
    MASS,
    NEURAL_LM,
    PARENT,
    PHRASE,
    PREFIX,
    TOKEN_LM,
    WORD_LM,
    WORDS,
    Rows,
)
from workbench.decoding.ctc_beam.selection import Selection

INTS, FLOATS = (PREFIX, HISTORY, LENGTH, WORDS, LEXICON_STATE, PHRASE, EARNED), (TOKEN_LM, WORD_LM, NEURAL_LM)


class Recorder:
    """Watches the search of one utterance.

    Args:
        knowledge: the parts of the score that language decides.
        rows: the beam before the first frame.
    """

    def __init__(self, knowledge: Knowledge, rows: Rows):
        self._knowledge = knowledge
        self._rows = rows
        self._numbers: dict[tuple[int, int], int] = {(0, 0): 0}  # prefix and history to number
        self._parents, self._tokens = [-1], [-1]
        self._frames: list[FrameRecord] = []
        self._pruned: Scores | None = None
        self._pruned_count, self._cut = 0, -np.inf
        self._merges = np.zeros((0, 2), dtype=np.int64)
        rows.remember()

    def frame(self, rows: Rows, unextended: UnextendedRows, extensions: Extensions, selection: Selection) -> None:
        """Records which hypotheses the frame prunes and merges."""
        ints, floats = rows.ints[:, 0], rows.floats[:, 0]
        numbers = self._numbers_of(ints)
        rows_with_parents = rows.joined(np.array([0]))
        survivors = rows_with_parents[selection.kept[0, rows_with_parents]]
        self._merges = np.stack([numbers[survivors], numbers[rows.rows_of(ints[PARENT][survivors])]], axis=1)
        self._cut = float(selection.cut[0])

        dropped_rows = np.flatnonzero((unextended.score > -np.inf) & ~selection.kept[0])
        is_not_chosen = np.ones(len(extensions), dtype=bool)
        is_not_chosen[selection.added] = False
        dropped_extensions = np.flatnonzero(is_not_chosen & (extensions.score > -np.inf))
        self._pruned_count = len(dropped_rows) + len(dropped_extensions)
        dropped_scores = np.concatenate([unextended.score[dropped_rows], extensions.score[dropped_extensions]])
        best = np.argsort(-dropped_scores, kind="stable")[:MAX_PRUNED]
        dropped_rows, dropped_extensions = (
            dropped_rows[best[best < len(dropped_rows)]],
            dropped_extensions[best[best >= len(dropped_rows)] - len(dropped_rows)],
        )

        self._number_new(rows, numbers, extensions.take(selection.added))
        candidates = extensions.take(dropped_extensions)
        new_ints, new_floats = self._columns(rows, candidates)
        ids = np.concatenate([numbers[dropped_rows], self._number_new(rows, numbers, candidates)])
        all_ints = {name: np.concatenate([ints[name][dropped_rows], new_ints[name]]) for name in INTS}
        all_floats = {name: np.concatenate([floats[name][dropped_rows], new_floats[name]]) for name in FLOATS}
        self._pruned = self._scores(
            ids, np.concatenate([unextended.mass[dropped_rows], candidates.mass]), all_ints, all_floats, MAX_PRUNED
        )

    def after_frame(self, rows: Rows) -> None:
        """Records the beam after the frame."""
        active_rows = np.flatnonzero(rows.ints[PREFIX, 0] >= 0)
        ints = rows.ints[:, 0, active_rows]
        floats = rows.floats[:, 0, active_rows]
        active = self._scores(
            self._numbers_of(ints),
            floats[MASS],
            {name: ints[name] for name in INTS},
            {name: floats[name] for name in FLOATS},
            MAX_ACTIVE,
        )
        assert self._pruned is not None
        self._frames.append(
            FrameRecord(active, self._pruned, len(active_rows), self._pruned_count, self._cut, self._merges)
        )

    def record(self, log_probs: np.ndarray, hypotheses: list[Hypothesis]) -> SearchRecord:
        """Returns the record of the search."""
        lexicon = self._knowledge.lexicon
        words = None
        if lexicon is not None:
            histories = [self._rows.histories.sequence(history) for _, history in self._numbers]
            words = tuple(tuple(lexicon.words[word] for word in history) for history in histories)
        return SearchRecord(
            log_probs,
            np.array(self._parents, dtype=np.int64),
            np.array(self._tokens, dtype=np.int64),
            words,
            tuple(self._frames),
            tuple(hypotheses),
        )

    def _numbers_of(self, ints: np.ndarray) -> np.ndarray:
        """Returns the numbers of the hypotheses in the rows; -1 for empty rows."""
        pairs = zip(ints[PREFIX].tolist(), ints[HISTORY].tolist(), strict=True)
        return np.array([self._numbers.get(pair, -1) for pair in pairs], dtype=np.int64)

    def _columns(self, rows: Rows, extensions: Extensions) -> tuple[Columns, Columns]:
        """Returns all columns of new hypotheses, with the prefixes and histories that they have or would have."""
        ints = {name: rows.ints[name, 0][extensions.parents] for name in INTS}
        floats = {name: rows.floats[name, 0][extensions.parents] for name in FLOATS}
        ints |= {
            name: extensions.ints[name] for name in INTS if name in extensions.ints and name not in (PREFIX, HISTORY)
        }
        floats |= {name: extensions.floats[name] for name in FLOATS if name in extensions.floats}
        ints[PREFIX] = rows.prefixes.number(ints[PREFIX], extensions.tokens)
        completed = extensions.word >= 0
        ints[HISTORY][completed] = rows.histories.number(ints[HISTORY][completed], extensions.word[completed])
        return ints, floats

    def _number_new(self, rows: Rows, numbers: np.ndarray, extensions: Extensions) -> np.ndarray:
        """Returns the numbers of new hypotheses; those that never occurred get their own."""
        ints, _ = self._columns(rows, extensions)
        ids = []
        pairs = zip(ints[PREFIX].tolist(), ints[HISTORY].tolist(), strict=True)
        for pair, parent, token in zip(
            pairs, numbers[extensions.parents].tolist(), extensions.tokens.tolist(), strict=True
        ):
            if pair not in self._numbers:
                self._numbers[pair] = len(self._parents)
                self._parents.append(parent)
                self._tokens.append(token)
            ids.append(self._numbers[pair])
        return np.array(ids, dtype=np.int64)

    def _scores(self, ids: np.ndarray, mass: np.ndarray, ints: Columns, floats: Columns, limit: int) -> Scores:
        knowledge = self._knowledge
        options = knowledge.options
        zeros = np.zeros(len(ids))
        bonus = options.beta * ints[LENGTH]
        ahead = zeros
        if knowledge.automaton is not None:
            bonus = bonus + options.word_bonus * ints[WORDS]
            ahead = knowledge.automaton.look_ahead[ints[LEXICON_STATE]]
        boost = zeros if knowledge.phrases is None else knowledge.boost(ints)
        scores = Scores(ids, mass, floats[TOKEN_LM], floats[WORD_LM], floats[NEURAL_LM], bonus, boost, ahead)
        best = np.argsort(-scores.total, kind="stable")[:limit]
        return Scores(*(getattr(scores, name)[best] for name in Scores.__dataclass_fields__))
