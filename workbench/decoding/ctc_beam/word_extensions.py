"""New hypotheses of a frame with a lexicon: old ones extended by a token, inside a word or to its end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.decoding.ctc_beam.candidates import Extensions, is_among
from workbench.decoding.ctc_beam.extensions import Extender, Frame
from workbench.decoding.ctc_beam.knowledge import Columns, Knowledge
from workbench.decoding.ctc_beam.lexicon_automaton import LexiconAutomaton
from workbench.decoding.ctc_beam.pairs import Pairs, likely_pairs
from workbench.decoding.ctc_beam.rows import BOUND, HISTORY, LANGUAGE, LAST, LEXICON_STATE, MASS, PARENT, PREFIX
from workbench.decoding.ctc_beam.selection import MIN_SCORE

Reader = Callable[[Columns, Columns, np.ndarray], None]  # adds a word to columns


class WordExtender(Extender):
    """Makes the new hypotheses of each frame with a lexicon. A pair of tokens and words is one hypothesis.

    Args: as `Extender`'s.
    """

    def __init__(self, vocabulary: int, knowledge: Knowledge, size: int, automaton: LexiconAutomaton):
        super().__init__(vocabulary, knowledge, size)
        self._automaton = automaton
        self._max_word_gain = knowledge.max_gain - knowledge.options.beta  # the most that a further word adds

    def extend(self, frame: Frame) -> Extensions:
        extensions, prefixes, reached = self._with_tokens(frame)
        knowledge, automaton, rows = self._knowledge, self._automaton, frame.rows
        extensions.ints[LEXICON_STATE] = np.zeros(len(extensions), dtype=np.int64)
        self._score(extensions)
        floor = frame.floor.take(extensions.utterances)
        unfinished = automaton.unfinished(reached)
        inside = ((unfinished >= 0) & (extensions.score + automaton.look_ahead.take(unfinished) >= floor)).nonzero()[0]
        may_complete = ((extensions.score >= floor - self._max_word_gain) & (extensions.score > -np.inf)).nonzero()[0]
        completing, words = automaton.words(reached.take(may_complete))
        completing = may_complete.take(completing)
        history = np.full(len(completing), -1)
        if not automaton.is_unambiguous:
            active_slots = np.sort(_slots(rows.ints[PREFIX], rows.ints[HISTORY], rows.histories.size), axis=None)
            inside = inside[~self._is_in_beam(frame, prefixes[inside], extensions.ints[HISTORY][inside], active_slots)]
            history = rows.histories.find(extensions.ints[HISTORY][completing], words)
            is_new = ~self._is_in_beam(frame, prefixes[completing], history, active_slots)
            completing, words, history = completing[is_new], words[is_new], history[is_new]

        extensions = extensions.take(np.concatenate([inside, completing]))
        extensions.ints[LEXICON_STATE][: len(inside)] = unfinished.take(inside)
        extensions.ints[HISTORY][len(inside) :] = history
        extensions.word[len(inside) :] = words
        first = len(inside)
        if len(completing):
            self._read_words(extensions, first, knowledge.read_word)
        self._score(extensions)
        if knowledge.neural_lm is not None:
            if knowledge.max_gain < np.inf:
                above_floor = (extensions.score >= frame.floor.take(extensions.utterances)).nonzero()[0]
                extensions, first = extensions.take(above_floor), int(np.searchsorted(above_floor, first))
            self._read_words(extensions, first, knowledge.read_word_neural)
            self._score(extensions)
        remains = True if automaton.is_unambiguous else self._merge(frame, extensions, first)
        selected = (remains & (extensions.score >= frame.floor.take(extensions.utterances))).nonzero()[0]
        return extensions.take(selected.take(np.argsort(extensions.utterances.take(selected), kind="stable")))

    def _is_in_beam(
        self, frame: Frame, prefixes: np.ndarray, histories: np.ndarray, active_slots: np.ndarray
    ) -> np.ndarray:
        """Returns which pairs of prefix and history are in the beam, bool [n]; -1 means without a number."""
        slots = _slots(prefixes, histories, frame.rows.histories.size)
        return (prefixes >= 0) & (histories >= 0) & is_among(slots, active_slots)

    def _with_tokens(self, frame: Frame) -> tuple[Extensions, np.ndarray, np.ndarray]:
        """Returns legal extensions by a token, and for each its prefix if that is active already (else -1), and the
        state of the lexicon that it reaches, in which words may be complete.
        """
        pairs, mass = self._new_pairs(frame, self._legal_pairs(frame))
        parents, utterances, tokens = pairs.parents, pairs.utterances, pairs.tokens
        prefixes, blank_mass, token_mass = np.full(len(mass), -1), np.full(len(mass), -np.inf), mass
        rows = frame.rows
        if not self._automaton.is_unambiguous:
            rejoined, children = self._existing(frame)
            rows_joined, unextended = frame.places(children, children // frame.capacity), frame.unextended
            parents = np.concatenate([parents, frame.places(rejoined, children // frame.capacity)])
            utterances = np.concatenate([utterances, children // frame.capacity])
            tokens = np.concatenate([tokens, rows.ints[LAST].take(rows_joined)])
            prefixes = np.concatenate([prefixes, rows.ints[PREFIX].take(rows_joined)])
            blank_mass = np.concatenate([blank_mass, unextended.blank_mass.take(children)])
            token_mass = np.concatenate([token_mass, unextended.token_mass.take(children)])
            mass = np.concatenate([mass, unextended.mass.take(children)])
        reached = self._automaton.step(rows.ints[LEXICON_STATE].take(parents), tokens)
        columns, values = self._columns(rows, parents)
        word = np.full(len(parents), -1)
        extensions = Extensions(parents, utterances, tokens, blank_mass, token_mass, mass, columns, values, word, mass)
        legal_indices = (reached >= 0).nonzero()[0]
        if len(legal_indices) < len(extensions):
            extensions, prefixes, reached = (
                extensions.take(legal_indices),
                prefixes[legal_indices],
                reached[legal_indices],
            )
        self._knowledge.read_token(extensions.ints, extensions.floats, extensions.tokens)
        return extensions, prefixes, reached

    def _legal_pairs(self, frame: Frame) -> Pairs:
        """Returns the pairs of `likely_pairs` that the lexicon allows."""
        states, base, capacity = frame.ints(LEXICON_STATE), frame.base, frame.capacity
        # Between words many tokens may follow. A look-ahead that is sure to come counts at once.
        root = (states == 0).reshape(base.shape)
        base_between_words = np.where(root, base, -np.inf)
        word_starts = likely_pairs(
            base_between_words, frame.log_probs + self._automaton.first_look_ahead, frame.cut, self._pair_limit
        )
        # Inside of words few may follow.
        limit, bound = frame.cut - frame.top, base
        if self._knowledge.bounded:
            limit, bound = frame.floor - frame.top, (frame.floats(MASS) + frame.floats(BOUND)).reshape(base.shape)
        inside = (~root & (bound >= np.maximum(limit, MIN_SCORE)[:, None])).ravel().nonzero()[0]
        positions, tokens, look_ahead = self._automaton.tokens(states.take(inside))
        rows = inside.take(positions)
        utterances = rows // capacity
        token_log_probs = frame.log_probs.take(utterances * self._vocabulary + tokens)
        reaching = (
            base.take(rows) + token_log_probs + look_ahead >= np.maximum(frame.cut, MIN_SCORE).take(utterances)
        ).nonzero()[0]
        return Pairs(
            np.concatenate([word_starts.parents, rows.take(reaching)]),
            np.concatenate([word_starts.tokens, tokens.take(reaching)]),
            np.concatenate([word_starts.utterances, utterances.take(reaching)]),
            np.concatenate(
                [
                    frame.log_probs.take(word_starts.utterances * self._vocabulary + word_starts.tokens),
                    token_log_probs.take(reaching),
                ]
            ),
        )

    def _existing(self, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """Returns pairs of a row and a row of its prefix's child that is also in the beam, as flat indices of rows.

        The row may lead to words that the child's rows do not have.
        """
        capacity, mass = frame.capacity, frame.unextended.mass.ravel()
        all_prefixes, joined = frame.ints(PREFIX), frame.rows.joined(frame.utterances)
        # One row for each prefix.
        children = joined[frame.rows.rows_of(all_prefixes[joined]) == joined % capacity]
        by_prefix = np.argsort(all_prefixes, kind="stable")
        prefixes, parent_prefixes = all_prefixes[by_prefix], frame.ints(PARENT)[children]
        starts = np.searchsorted(prefixes, parent_prefixes, "left")
        counts = np.searchsorted(prefixes, parent_prefixes, "right") - starts
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        parents, children = by_prefix[np.repeat(starts, counts) + offsets], np.repeat(children, counts)
        language = frame.floats(LANGUAGE) - self._automaton.look_ahead[frame.ints(LEXICON_STATE)]
        mass = mass[children]
        may_reach = (mass + language[parents] >= frame.cut[parents // capacity]) & (mass > -np.inf)
        return parents[may_reach], children[may_reach]

    def _read_words(self, extensions: Extensions, first: int, read: Reader) -> None:
        """Adds their words to the hypotheses from the index `first` on."""
        ints: Columns = {name: column[first:] for name, column in extensions.ints.items()}
        floats: Columns = {name: column[first:] for name, column in extensions.floats.items()}
        read(ints, floats, extensions.word[first:])
        for columns, changed_columns in ((extensions.ints, ints), (extensions.floats, floats)):
            for name, column in changed_columns.items():
                columns[name][first:] = column

    def _score(self, extensions: Extensions) -> None:
        """Computes the scores of hypotheses from their columns."""
        extensions.floats[LANGUAGE] = self._knowledge.language_score(extensions.ints, extensions.floats)
        extensions.score = extensions.mass + extensions.floats[LANGUAGE]

    def _merge(self, frame: Frame, extensions: Extensions, first: int) -> np.ndarray:
        """Joins pairs of equal tokens and words: one has just completed a word, the other is inside of the next one.

        Returns which hypotheses remain, bool [n]: of a pair, the one inside, which is now at both places.

        Args:
            frame: the frame.
            extensions: hypotheses inside of words, then those that complete one.
            first: the index of the first that completes one.
        """
        remains = np.ones(len(extensions), dtype=bool)
        if not 0 < first < len(extensions):
            return remains
        prefixes = frame.rows.ints[PREFIX].take(extensions.parents) * self._vocabulary + extensions.tokens
        keys = _slots(prefixes, extensions.ints[HISTORY], frame.rows.histories.size)
        order = np.argsort(keys[:first], kind="stable")
        inside = keys[order]
        indices = np.minimum(np.searchsorted(inside, keys[first:]), first - 1)
        is_same = (inside[indices] == keys[first:]) & (extensions.ints[HISTORY][first:] >= 0)
        if is_same.any():
            partners = order[indices[is_same]]
            extensions.ints[LEXICON_STATE][partners] = self._automaton.with_root(
                extensions.ints[LEXICON_STATE][partners]
            )
            remains[first:] = ~is_same
            self._score(extensions)
        return remains


def _slots(prefixes: np.ndarray, histories: np.ndarray, count: int) -> np.ndarray:
    """Returns a number for each pair of a prefix and a history."""
    return prefixes * count + histories
