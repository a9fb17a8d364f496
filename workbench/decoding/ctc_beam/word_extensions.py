"""New hypotheses of a frame with a lexicon: old ones extended by a token, inside a word or to its end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.decoding.ctc_beam.candidates import Extensions, among
from workbench.decoding.ctc_beam.extensions import Extender, Frame
from workbench.decoding.ctc_beam.knowledge import Columns, Knowledge
from workbench.decoding.ctc_beam.pairs import Pairs, likely_pairs
from workbench.decoding.ctc_beam.rows import HISTORY, LANGUAGE, LAST, MASS, PARENT, PREFIX, REACH, SPELLING
from workbench.decoding.ctc_beam.selection import LOWEST
from workbench.decoding.ctc_beam.spelling import Spelling

Reader = Callable[[Columns, Columns, np.ndarray], None]  # adds a word to columns


class WordExtender(Extender):
    """Makes the new hypotheses of each frame with a lexicon. A pair of tokens and words is one hypothesis.

    Args: as `Extender`'s.
    """

    def __init__(self, vocabulary: int, knowledge: Knowledge, size: int, spelling: Spelling):
        super().__init__(vocabulary, knowledge, size)
        self._spelling = spelling
        self._word_gain = knowledge.gain - knowledge.options.beta  # the most that a further word adds

    def extend(self, frame: Frame) -> Extensions:
        new, prefixes, reached = self._with_tokens(frame)
        knowledge, spelling, rows = self._knowledge, self._spelling, frame.rows
        new.ints[SPELLING] = np.zeros(len(new), dtype=np.int64)
        self._judge(new)
        floor = frame.floor.take(new.utterances)
        still = spelling.unfinished(reached)
        inside = ((still >= 0) & (new.score + spelling.ahead.take(still) >= floor)).nonzero()[0]
        hopeful = ((new.score >= floor - self._word_gain) & (new.score > -np.inf)).nonzero()[0]
        at, words = spelling.words(reached.take(hopeful))
        at = hopeful.take(at)
        history = np.full(len(at), -1)
        if not spelling.certain:
            alive = np.sort(_slots(rows.ints[PREFIX], rows.ints[HISTORY], rows.histories.size), axis=None)
            inside = inside[~self._living(frame, prefixes[inside], new.ints[HISTORY][inside], alive)]
            history = rows.histories.find(new.ints[HISTORY][at], words)
            fresh = ~self._living(frame, prefixes[at], history, alive)
            at, words, history = at[fresh], words[fresh], history[fresh]

        new = new.take(np.concatenate([inside, at]))
        new.ints[SPELLING][: len(inside)] = still.take(inside)
        new.ints[HISTORY][len(inside) :] = history
        new.word[len(inside) :] = words
        first = len(inside)
        if len(at):
            self._read_words(new, first, knowledge.read_word)
        self._judge(new)
        if knowledge.neural_lm is not None:
            if knowledge.gain < np.inf:
                hope = (new.score >= frame.floor.take(new.utterances)).nonzero()[0]
                new, first = new.take(hope), int(np.searchsorted(hope, first))
            self._read_words(new, first, knowledge.read_word_neural)
            self._judge(new)
        remain = True if spelling.certain else self._merge(frame, new, first)
        chosen = (remain & (new.score >= frame.floor.take(new.utterances))).nonzero()[0]
        return new.take(chosen.take(np.argsort(new.utterances.take(chosen), kind="stable")))

    def _living(self, frame: Frame, prefixes: np.ndarray, histories: np.ndarray, alive: np.ndarray) -> np.ndarray:
        """Returns which pairs of prefix and history are in the beam, bool [n]; -1 means without a number."""
        slots = _slots(prefixes, histories, frame.rows.histories.size)
        return (prefixes >= 0) & (histories >= 0) & among(slots, alive)

    def _with_tokens(self, frame: Frame) -> tuple[Extensions, np.ndarray, np.ndarray]:
        """Returns legal extensions by a token, and for each its prefix if that lives already (else -1), and the state
        of the lexicon that it reaches, in which words may be complete.
        """
        pairs, mass = self._fresh(frame, self._legal_pairs(frame))
        parents, utterances, tokens = pairs.parents, pairs.utterances, pairs.tokens
        prefixes, blank_mass, token_mass = np.full(len(mass), -1), np.full(len(mass), -np.inf), mass
        rows = frame.rows
        if not self._spelling.certain:
            rejoined, children = self._existing(frame)
            at, stays = frame.places(children, children // frame.capacity), frame.stays
            parents = np.concatenate([parents, frame.places(rejoined, children // frame.capacity)])
            utterances = np.concatenate([utterances, children // frame.capacity])
            tokens = np.concatenate([tokens, rows.ints[LAST].take(at)])
            prefixes = np.concatenate([prefixes, rows.ints[PREFIX].take(at)])
            blank_mass = np.concatenate([blank_mass, stays.blank_mass.take(children)])
            token_mass = np.concatenate([token_mass, stays.token_mass.take(children)])
            mass = np.concatenate([mass, stays.mass.take(children)])
        reached = self._spelling.step(rows.ints[SPELLING].take(parents), tokens)
        columns, values = self._columns(rows, parents)
        word = np.full(len(parents), -1)
        new = Extensions(parents, utterances, tokens, blank_mass, token_mass, mass, columns, values, word, mass)
        legal = (reached >= 0).nonzero()[0]
        if len(legal) < len(new):
            new, prefixes, reached = new.take(legal), prefixes[legal], reached[legal]
        self._knowledge.read_token(new.ints, new.floats, new.tokens)
        return new, prefixes, reached

    def _legal_pairs(self, frame: Frame) -> Pairs:
        """Returns the pairs of `likely_pairs` that the lexicon allows."""
        spelling, base, capacity = frame.ints(SPELLING), frame.base, frame.capacity
        # Between words many tokens may follow. A look-ahead that is sure to come counts at once.
        root = (spelling == 0).reshape(base.shape)
        between = np.where(root, base, -np.inf)
        first = likely_pairs(between, frame.log_probs + self._spelling.first_ahead, frame.cut, self._most)
        # Inside of words few may follow.
        limit, reach = frame.cut - frame.top, base
        if self._knowledge.bounded:
            limit, reach = frame.floor - frame.top, (frame.floats(MASS) + frame.floats(REACH)).reshape(base.shape)
        inside = (~root & (reach >= np.maximum(limit, LOWEST)[:, None])).ravel().nonzero()[0]
        positions, tokens, ahead = self._spelling.tokens(spelling.take(inside))
        rows = inside.take(positions)
        utterances = rows // capacity
        chances = frame.log_probs.take(utterances * self._vocabulary + tokens)
        reaching = (base.take(rows) + chances + ahead >= np.maximum(frame.cut, LOWEST).take(utterances)).nonzero()[0]
        return Pairs(
            np.concatenate([first.parents, rows.take(reaching)]),
            np.concatenate([first.tokens, tokens.take(reaching)]),
            np.concatenate([first.utterances, utterances.take(reaching)]),
            np.concatenate(
                [frame.log_probs.take(first.utterances * self._vocabulary + first.tokens), chances.take(reaching)]
            ),
        )

    def _existing(self, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """Returns pairs of a row and a row of its prefix's child that is also in the beam, as flat indices of rows.

        The row may lead to words that the child's rows do not have.
        """
        capacity, mass = frame.capacity, frame.stays.mass.ravel()
        all_prefixes, joined = frame.ints(PREFIX), frame.rows.joined(frame.who)
        # One row for each prefix.
        children = joined[frame.rows.rows_of(all_prefixes[joined]) == joined % capacity]
        by_prefix = np.argsort(all_prefixes, kind="stable")
        prefixes, parent_prefixes = all_prefixes[by_prefix], frame.ints(PARENT)[children]
        first = np.searchsorted(prefixes, parent_prefixes, "left")
        counts = np.searchsorted(prefixes, parent_prefixes, "right") - first
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        parents, children = by_prefix[np.repeat(first, counts) + offsets], np.repeat(children, counts)
        language = frame.floats(LANGUAGE) - self._spelling.ahead[frame.ints(SPELLING)]
        mass = mass[children]
        hopeful = (mass + language[parents] >= frame.cut[parents // capacity]) & (mass > -np.inf)
        return parents[hopeful], children[hopeful]

    def _read_words(self, new: Extensions, first: int, read: Reader) -> None:
        """Adds their words to the hypotheses from the index `first` on."""
        ints: Columns = {name: column[first:] for name, column in new.ints.items()}
        floats: Columns = {name: column[first:] for name, column in new.floats.items()}
        read(ints, floats, new.word[first:])
        for columns, changed in ((new.ints, ints), (new.floats, floats)):
            for name, column in changed.items():
                columns[name][first:] = column

    def _judge(self, new: Extensions) -> None:
        """Computes the scores of hypotheses from their columns."""
        new.floats[LANGUAGE] = self._knowledge.language(new.ints, new.floats)
        new.score = new.mass + new.floats[LANGUAGE]

    def _merge(self, frame: Frame, new: Extensions, first: int) -> np.ndarray:
        """Joins pairs of equal tokens and words: one has just completed a word, the other is inside of the next one.

        Returns which hypotheses remain, bool [n]: of a pair, the one inside, which is now at both places.

        Args:
            frame: the frame.
            new: hypotheses inside of words, then those that complete one.
            first: the index of the first that completes one.
        """
        remain = np.ones(len(new), dtype=bool)
        if not 0 < first < len(new):
            return remain
        prefixes = frame.rows.ints[PREFIX].take(new.parents) * self._vocabulary + new.tokens
        keys = _slots(prefixes, new.ints[HISTORY], frame.rows.histories.size)
        order = np.argsort(keys[:first], kind="stable")
        inside = keys[order]
        found = np.minimum(np.searchsorted(inside, keys[first:]), first - 1)
        same = (inside[found] == keys[first:]) & (new.ints[HISTORY][first:] >= 0)
        if same.any():
            partners = order[found[same]]
            new.ints[SPELLING][partners] = self._spelling.with_root(new.ints[SPELLING][partners])
            remain[first:] = ~same
            self._judge(new)
        return remain


def _slots(prefixes: np.ndarray, histories: np.ndarray, count: int) -> np.ndarray:
    """Returns a number for each pair of a prefix and a history."""
    return prefixes * count + histories
