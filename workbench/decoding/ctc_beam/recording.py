"""Records a search while it runs. The record's form is in `record.py`."""

from __future__ import annotations

import numpy as np

from workbench.decoding.ctc_beam.candidates import Extensions, UnextendedRows
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.knowledge import Columns, Knowledge
from workbench.decoding.ctc_beam.record import MOST_LIVING, MOST_PRUNED, FrameRecord, Scores, SearchRecord
from workbench.decoding.ctc_beam.rows import (
    EARNED,
    HISTORY,
    LENGTH,
    MASS,
    NEURAL_LM,
    PARENT,
    PHRASE,
    PREFIX,
    SPELLING,
    TOKEN_LM,
    WORD_LM,
    WORDS,
    Rows,
)
from workbench.decoding.ctc_beam.selection import Chosen

INTS, FLOATS = (PREFIX, HISTORY, LENGTH, WORDS, SPELLING, PHRASE, EARNED), (TOKEN_LM, WORD_LM, NEURAL_LM)


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

    def frame(self, rows: Rows, stays: UnextendedRows, new: Extensions, chosen: Chosen) -> None:
        """Records which hypotheses the frame prunes and merges."""
        ints, floats = rows.ints[:, 0], rows.floats[:, 0]
        numbers = self._numbers_of(ints)
        joined = rows.joined(np.array([0]))
        survivors = joined[chosen.stays[0, joined]]
        self._merges = np.stack([numbers[survivors], numbers[rows.rows_of(ints[PARENT][survivors])]], axis=1)
        self._cut = float(chosen.cut[0])

        dropped = np.flatnonzero((stays.score > -np.inf) & ~chosen.stays[0])
        missed = np.ones(len(new), dtype=bool)
        missed[chosen.comes] = False
        lost = np.flatnonzero(missed & (new.score > -np.inf))
        self._pruned_count = len(dropped) + len(lost)
        worth = np.concatenate([stays.score[dropped], new.score[lost]])
        best = np.argsort(-worth, kind="stable")[:MOST_PRUNED]
        dropped, lost = dropped[best[best < len(dropped)]], lost[best[best >= len(dropped)] - len(dropped)]

        self._number_new(rows, numbers, new.take(chosen.comes))
        candidates = new.take(lost)
        new_ints, new_floats = self._columns(rows, candidates)
        ids = np.concatenate([numbers[dropped], self._number_new(rows, numbers, candidates)])
        both_ints = {name: np.concatenate([ints[name][dropped], new_ints[name]]) for name in INTS}
        both_floats = {name: np.concatenate([floats[name][dropped], new_floats[name]]) for name in FLOATS}
        self._pruned = self._scores(
            ids, np.concatenate([stays.mass[dropped], candidates.mass]), both_ints, both_floats, MOST_PRUNED
        )

    def after(self, rows: Rows) -> None:
        """Records the beam after the frame."""
        alive = np.flatnonzero(rows.ints[PREFIX, 0] >= 0)
        ints = rows.ints[:, 0, alive]
        floats = rows.floats[:, 0, alive]
        living = self._scores(
            self._numbers_of(ints),
            floats[MASS],
            {name: ints[name] for name in INTS},
            {name: floats[name] for name in FLOATS},
            MOST_LIVING,
        )
        assert self._pruned is not None
        self._frames.append(FrameRecord(living, self._pruned, len(alive), self._pruned_count, self._cut, self._merges))

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

    def _columns(self, rows: Rows, new: Extensions) -> tuple[Columns, Columns]:
        """Returns all columns of new hypotheses, with the prefixes and histories that they have or would have."""
        ints = {name: rows.ints[name, 0][new.parents] for name in INTS}
        floats = {name: rows.floats[name, 0][new.parents] for name in FLOATS}
        ints |= {name: new.ints[name] for name in INTS if name in new.ints and name not in (PREFIX, HISTORY)}
        floats |= {name: new.floats[name] for name in FLOATS if name in new.floats}
        ints[PREFIX] = rows.prefixes.number(ints[PREFIX], new.tokens)
        completed = new.word >= 0
        ints[HISTORY][completed] = rows.histories.number(ints[HISTORY][completed], new.word[completed])
        return ints, floats

    def _number_new(self, rows: Rows, numbers: np.ndarray, new: Extensions) -> np.ndarray:
        """Returns the numbers of new hypotheses; those that never occurred get their own."""
        ints, _ = self._columns(rows, new)
        found = []
        pairs = zip(ints[PREFIX].tolist(), ints[HISTORY].tolist(), strict=True)
        for pair, parent, token in zip(pairs, numbers[new.parents].tolist(), new.tokens.tolist(), strict=True):
            if pair not in self._numbers:
                self._numbers[pair] = len(self._parents)
                self._parents.append(parent)
                self._tokens.append(token)
            found.append(self._numbers[pair])
        return np.array(found, dtype=np.int64)

    def _scores(self, ids: np.ndarray, mass: np.ndarray, ints: Columns, floats: Columns, most: int) -> Scores:
        knowledge = self._knowledge
        options = knowledge.options
        nothing = np.zeros(len(ids))
        bonus = options.beta * ints[LENGTH]
        ahead = nothing
        if knowledge.spelling is not None:
            bonus = bonus + options.word_bonus * ints[WORDS]
            ahead = knowledge.spelling.ahead[ints[SPELLING]]
        boost = nothing if knowledge.phrases is None else knowledge.boost(ints)
        scores = Scores(ids, mass, floats[TOKEN_LM], floats[WORD_LM], floats[NEURAL_LM], bonus, boost, ahead)
        best = np.argsort(-scores.total, kind="stable")[:most]
        return Scores(*(getattr(scores, name)[best] for name in Scores.__dataclass_fields__))
