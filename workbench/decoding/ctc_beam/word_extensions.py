"""New hypotheses of a frame with a lexicon: old ones extended by a token, inside a word or to its end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.decoding.ctc_beam.candidates import Extensions, Stays, among
from workbench.decoding.ctc_beam.extensions import Extender, Frame
from workbench.decoding.ctc_beam.knowledge import Columns, Knowledge
from workbench.decoding.ctc_beam.pairs import Pairs, likely_pairs
from workbench.decoding.ctc_beam.progress import Progress
from workbench.decoding.ctc_beam.rows import HISTORY, LANGUAGE, LAST, MASS, PARENT, PREFIX, SPELLING, Rows
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

    def quiet(self, rows: Rows, progress: Progress, stays: Stays, floor: np.ndarray) -> np.ndarray:
        """Returns in which next frames no new hypothesis can reach the floor: none, bool [active].

        The tokens of a hypothesis may live with other words already. It then has all of their alignments, not only
        those that begin in this frame, and can return to the beam in any frame.
        """
        return np.zeros(len(floor), dtype=bool)

    def extend(self, frame: Frame) -> Extensions:
        new, prefixes, reached = self._with_tokens(frame)
        knowledge, spelling, histories = self._knowledge, self._spelling, frame.rows.histories
        new.ints[SPELLING] = np.zeros(len(new), dtype=np.int64)
        self._judge(new)
        floor = frame.floor[new.parents // frame.capacity]
        alive = np.sort(_slots(frame.ints[PREFIX], frame.ints[HISTORY], histories.size))

        still = spelling.unfinished(reached)
        inside = np.flatnonzero((still >= 0) & (new.score + spelling.ahead[still] >= floor))
        living = (prefixes[inside] >= 0) & among(
            _slots(prefixes[inside], new.ints[HISTORY][inside], histories.size), alive
        )
        inside = inside[~living]

        hopeful = np.flatnonzero((new.score >= floor - self._word_gain) & (new.score > -np.inf))
        at, words = spelling.words(reached[hopeful])
        at = hopeful[at]
        history = histories.find(new.ints[HISTORY][at], words)
        living = (prefixes[at] >= 0) & (history >= 0) & among(_slots(prefixes[at], history, histories.size), alive)
        at, words, history = at[~living], words[~living], history[~living]

        new = new.take(np.concatenate([inside, at]))
        new.ints[SPELLING][: len(inside)] = still[inside]
        new.ints[HISTORY][len(inside) :] = history
        new.word[len(inside) :] = words
        self._read_words(new, len(inside), knowledge.read_word)
        self._judge(new)
        if knowledge.neural_lm is not None:
            if knowledge.gain < np.inf:
                hope = new.score >= frame.floor[new.parents // frame.capacity]
                new, inside = new.take(hope), inside[hope[: len(inside)]]
            self._read_words(new, len(inside), knowledge.read_word_neural)
            self._judge(new)
        wanted = self._merge(frame, new, len(inside)) & (new.score >= frame.floor[new.parents // frame.capacity])
        chosen = np.flatnonzero(wanted)
        return new.take(chosen[np.argsort(new.parents[chosen] // frame.capacity, kind="stable")])

    def _with_tokens(self, frame: Frame) -> tuple[Extensions, np.ndarray, np.ndarray]:
        """Returns legal extensions by a token, and for each its prefix if that lives already (else -1), and the state
        of the lexicon that it reaches, in which words may be complete.
        """
        pairs, mass = self._fresh(frame, self._legal_pairs(frame))
        rejoined, children = self._existing(frame)
        stays, ints = frame.stays, frame.ints
        never = np.full(len(mass), -np.inf)
        prefixes = np.concatenate([np.full(len(mass), -1), ints[PREFIX][children]])
        parents = np.concatenate([pairs.parents, rejoined])
        tokens = np.concatenate([pairs.tokens, ints[LAST][children]])
        masses = (
            np.concatenate([never, stays.blank_mass[children]]),
            np.concatenate([mass, stays.token_mass[children]]),
            np.concatenate([mass, stays.mass[children]]),
        )
        reached = self._spelling.step(ints[SPELLING][parents], tokens)
        columns, values = self._columns(frame, parents)
        new = Extensions(parents, tokens, *masses, columns, values, np.full(len(parents), -1), masses[2])
        legal = reached >= 0
        if not legal.all():
            new, prefixes, reached = new.take(legal), prefixes[legal], reached[legal]
        self._knowledge.read_token(new.ints, new.floats, new.tokens)
        return new, prefixes, reached

    def _legal_pairs(self, frame: Frame) -> Pairs:
        """Returns pairs as `likely_pairs` does, of those that the lexicon allows."""
        spelling, count, capacity = frame.ints[SPELLING], len(frame.log_probs), frame.capacity
        base = frame.floats[MASS] + frame.language
        # Between words many tokens may follow. A look-ahead that is sure to come counts at once.
        between = np.where(spelling == 0, base, -np.inf).reshape(count, capacity)
        first = likely_pairs(between, frame.log_probs + self._spelling.first_ahead, frame.cut, self._most)
        # Inside of words few may follow.
        inside = np.flatnonzero((spelling != 0) & (base > -np.inf))
        positions, tokens, ahead = self._spelling.tokens(spelling[inside])
        rows = inside[positions]
        utterances = rows // capacity
        chances = frame.log_probs[utterances, tokens]
        reach = (base[rows] + chances + ahead >= frame.cut[utterances]).nonzero()[0]
        return Pairs(
            np.concatenate([first.parents, rows[reach]]),
            np.concatenate([first.tokens, tokens[reach]]),
            np.concatenate([first.utterances, utterances[reach]]),
            np.concatenate([frame.log_probs[first.utterances, first.tokens], chances[reach]]),
        )

    def _existing(self, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """Returns the pairs of a row and a child of its prefix that lives too, both as flat indices of rows.

        The row may lead to words that the child's rows do not have.
        """
        ints, stays, capacity = frame.ints, frame.stays, frame.capacity
        joined = frame.joined
        children = joined[frame.rows.rows_of(ints[PREFIX][joined]) == joined % capacity]  # one row for each prefix
        by_prefix = np.argsort(ints[PREFIX], kind="stable")
        prefixes = ints[PREFIX][by_prefix]
        first = np.searchsorted(prefixes, ints[PARENT][children], "left")
        counts = np.searchsorted(prefixes, ints[PARENT][children], "right") - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        parents, children = by_prefix[np.repeat(first, counts) + within], np.repeat(children, counts)
        mass = stays.mass[children]
        hopeful = (mass + frame.language[parents] >= frame.cut[parents // capacity]) & (mass > -np.inf)
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
        prefixes = frame.ints[PREFIX][new.parents] * self._vocabulary + new.tokens
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
