"""New hypotheses of a frame: old ones extended by a token, and by the words that it completes.

A new hypothesis is left out early if its acoustics and the most that language may add cannot reach the beam. So the
language models are asked for few, and the result is the same as if they were asked for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.decoding.ctc_beam.knowledge import Columns, Knowledge
from workbench.decoding.ctc_beam.rows import (
    BLANK_MASS,
    EARNED,
    HISTORY,
    LANGUAGE,
    LAST,
    LENGTH,
    MASS,
    NEURAL_LM,
    NEURAL_STATE,
    PARENT,
    PHRASE,
    PREFIX,
    SPELLING,
    TOKEN_LM,
    TOKEN_STATE,
    WORD_LM,
    WORD_STATE,
    WORDS,
    Rows,
)
from workbench.decoding.ctc_beam.selection import LOWEST

BREADTH = 3  # times the beam's size: new hypotheses of a frame, the best by acoustics, that language models judge


@dataclass
class Stays:
    """The rows of the active utterances after a frame in which they gain no token; float64 [utterances x rows]."""

    blank_mass: np.ndarray
    token_mass: np.ndarray
    mass: np.ndarray
    score: np.ndarray
    joined: np.ndarray  # int64 [m]: rows whose parent's alignments joined them


@dataclass
class Extensions:
    """New hypotheses. `parents` are flat indices of rows; the columns hold what changes against the parent."""

    parents: np.ndarray
    tokens: np.ndarray
    blank_mass: np.ndarray
    token_mass: np.ndarray
    mass: np.ndarray
    ints: Columns
    floats: Columns
    word: np.ndarray  # the word that the token completes, or -1
    score: np.ndarray

    def take(self, wanted: np.ndarray) -> Extensions:
        """Returns the hypotheses that a mask or indices choose."""
        return Extensions(
            self.parents[wanted],
            self.tokens[wanted],
            self.blank_mass[wanted],
            self.token_mass[wanted],
            self.mass[wanted],
            {name: column[wanted] for name, column in self.ints.items()},
            {name: column[wanted] for name, column in self.floats.items()},
            self.word[wanted],
            self.score[wanted],
        )

    def __len__(self) -> int:
        return len(self.parents)


def likely_pairs(
    base: np.ndarray, log_probs: np.ndarray, cut: np.ndarray, allowed: np.ndarray, most: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs of a row (its flat index) and a token whose sum reaches the cut, in a fixed order.

    Args:
        base: scores of the rows, float64 [utterances, rows].
        log_probs: of the tokens in this frame, float64 [utterances, vocabulary].
        cut: float64 [utterances].
        allowed: tokens that may be appended, bool [utterances, vocabulary] or [vocabulary].
        most: the best so many pairs of each utterance are enough; a few more may come. None for all pairs.
    """
    rows = base.shape[1]
    best = base.max(axis=1)
    likely = (log_probs >= np.maximum(cut - best, LOWEST)[:, None]) & allowed
    if most is not None and np.count_nonzero(likely) * rows > 2 * most * len(base):
        cut = np.maximum(cut, _rank_bound(base, np.where(likely, log_probs, -np.inf), most))
        likely &= log_probs >= np.maximum(cut - best, LOWEST)[:, None]
    utterance, token = np.divmod(np.flatnonzero(likely), likely.shape[1])
    found = np.flatnonzero(base[utterance] + log_probs[utterance, token][:, None] >= cut[utterance][:, None])
    pair, row = np.divmod(found, rows)
    return utterance[pair] * rows + row, token[pair]


def _rank_bound(first: np.ndarray, second: np.ndarray, most: int) -> np.ndarray:
    """Returns a number that the best `most` sums of an entry of each array reach, float64 [utterances].

    With both sorted from the best, the sum of the i-th and the j-th is reached by i x j sums. -inf if there are fewer.
    """
    if second.shape[1] > most:
        second = np.partition(second, second.shape[1] - most, axis=1)[:, -most:]
    first, second = np.sort(first, axis=1)[:, ::-1], np.sort(second, axis=1)[:, ::-1]
    i = np.arange(min(first.shape[1], most))
    j = -(-most // (i + 1)) - 1
    i, j = i[j < second.shape[1]], j[j < second.shape[1]]
    bound: np.ndarray = (first[:, i] + second[:, j]).max(axis=1, initial=-np.inf)
    return bound


class Extender:
    """Makes the new hypotheses of each frame.

    Args:
        vocabulary: number of tokens.
        knowledge: the parts of the score that language decides.
        size: hypotheses that live after a frame.
    """

    def __init__(self, vocabulary: int, knowledge: Knowledge, size: int):
        self._vocabulary = vocabulary
        self._knowledge = knowledge
        # Without language, the best `size` new hypotheses are among the best 3 x size pairs: at most `size` of these
        # are not new, and at most `size` repeat a token and have a lower score. So nothing is left out for this reason
        # where the beam holds everything.
        self._most = BREADTH * size
        self._bounds_matter = knowledge.gain < np.inf
        # The columns that a token may change, and those that a word may change.
        self._ints, self._floats = [LENGTH], []
        if knowledge.phrases is not None:
            self._ints += [PHRASE, EARNED]
        for model, state, value in (
            (knowledge.token_lm, TOKEN_STATE, TOKEN_LM),
            (knowledge.word_lm, WORD_STATE, WORD_LM),
            (knowledge.neural_lm, NEURAL_STATE, NEURAL_LM),
        ):
            if model is not None:
                self._ints.append(state)
                self._floats.append(value)
        if knowledge.spelling is not None:
            self._ints += [WORDS, SPELLING, HISTORY]

    def extend(
        self, rows: Rows, stays: Stays, log_probs: np.ndarray, floor: np.ndarray, allowed: np.ndarray
    ) -> Extensions:
        """Returns the new hypotheses that may reach the beam, by utterance.

        Args:
            rows: the beams before this frame.
            stays: the same rows if they gain no token.
            log_probs: of this frame, float64 [utterances, vocabulary], for the first utterances of the beams.
            floor: the scores that new hypotheses must reach, float64 [utterances].
            allowed: tokens that may be appended, bool [utterances, vocabulary] or [vocabulary].
        """
        count, capacity = len(log_probs), rows.capacity
        ints = rows.ints.reshape(len(rows.ints), -1)[:, : count * capacity]
        floats = rows.floats.reshape(len(rows.floats), -1)[:, : count * capacity]
        knowledge = self._knowledge
        cut = np.maximum(floor - knowledge.gain, LOWEST)
        # What the parents bring: language without the look-ahead of their unfinished word.
        language = floats[LANGUAGE] - knowledge.ahead(ints[SPELLING])
        base = floats[MASS] + language
        if knowledge.spelling is None:
            parents, tokens = likely_pairs(base.reshape(count, capacity), log_probs, cut, allowed, self._most)
        else:
            parents, tokens = self._legal_pairs(ints[SPELLING], base, log_probs, cut, allowed)
        mass = np.where(ints[LAST][parents] == tokens, floats[BLANK_MASS][parents], floats[MASS][parents])
        mass = mass + log_probs[parents // capacity, tokens]
        fresh = (mass + language[parents] >= cut[parents // capacity]) & (mass > -np.inf)
        known = np.sort(ints[PARENT][stays.joined] * self._vocabulary + ints[LAST][stays.joined])
        fresh &= ~_among(ints[PREFIX][parents] * self._vocabulary + tokens, known)
        parents, tokens, mass = parents[fresh], tokens[fresh], mass[fresh]
        never = np.full(len(parents), -np.inf)
        if knowledge.spelling is None:
            return self._with_tokens(ints, floats, parents, tokens, (never, mass, mass))
        again = _existing(rows, ints, stays, count)
        if len(again[0]):
            inner = stays.mass[again[1]] + language[again[0]] >= cut[again[0] // capacity]
            inner &= stays.mass[again[1]] > -np.inf
            rejoined, children = again[0][inner], again[1][inner]
            parents = np.concatenate([parents, rejoined])
            tokens = np.concatenate([tokens, ints[LAST][children]])
            masses = (
                np.concatenate([never, stays.blank_mass[children]]),
                np.concatenate([mass, stays.token_mass[children]]),
                np.concatenate([mass, stays.mass[children]]),
            )
            prefixes = np.concatenate([np.full(len(mass), -1), ints[PREFIX][children]])
        else:
            masses, prefixes = (never, mass, mass), np.full(len(mass), -1)
        return self._with_words(rows, ints, floats, parents, tokens, masses, prefixes, floor, capacity)

    def _legal_pairs(
        self, spelling: np.ndarray, base: np.ndarray, log_probs: np.ndarray, cut: np.ndarray, allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns pairs as `likely_pairs` does, of those that the lexicon allows."""
        automaton = self._knowledge.spelling
        assert automaton is not None
        count = len(log_probs)
        capacity = len(base) // count
        between = np.where(spelling == 0, base, -np.inf).reshape(count, capacity)  # words: many tokens may follow
        parents, tokens = likely_pairs(between, log_probs, cut, allowed & automaton.first_tokens, self._most)
        inside = np.flatnonzero((spelling != 0) & (base > -np.inf))
        positions, following = automaton.tokens(spelling[inside])
        rows = inside[positions]
        utterances = rows // capacity
        reach = base[rows] + log_probs[utterances, following] >= cut[utterances]
        reach &= allowed[following] if allowed.ndim == 1 else allowed[utterances, following]
        return np.concatenate([parents, rows[reach]]), np.concatenate([tokens, following[reach]])

    def _with_tokens(
        self,
        ints: np.ndarray,
        floats: np.ndarray,
        parents: np.ndarray,
        tokens: np.ndarray,
        masses: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> Extensions:
        """Returns the hypotheses without a lexicon."""
        columns: Columns = {name: ints[name][parents] for name in self._ints}
        values: Columns = {name: floats[name][parents] for name in self._floats}
        self._knowledge.read_token(columns, values, tokens)
        values[LANGUAGE] = self._knowledge.language(columns, values)
        score = masses[2] + values[LANGUAGE]
        return Extensions(parents, tokens, *masses, columns, values, np.full(len(parents), -1), score)

    def _with_words(
        self,
        rows: Rows,
        ints: np.ndarray,
        floats: np.ndarray,
        parents: np.ndarray,
        tokens: np.ndarray,
        masses: tuple[np.ndarray, np.ndarray, np.ndarray],
        prefixes: np.ndarray,
        floor: np.ndarray,
        capacity: int,
    ) -> Extensions:
        """Returns the hypotheses with a lexicon: inside a word, or with one more word.

        `prefixes` has the prefix of the result where that lives already, else -1.
        """
        knowledge, spelling = self._knowledge, self._knowledge.spelling
        assert spelling is not None
        reached = spelling.step(ints[SPELLING][parents], tokens)
        legal = np.flatnonzero(reached >= 0)
        parents, tokens, prefixes, reached = parents[legal], tokens[legal], prefixes[legal], reached[legal]
        columns: Columns = {name: ints[name][parents] for name in self._ints}
        values: Columns = {name: floats[name][parents] for name in self._floats}
        knowledge.read_token(columns, values, tokens)
        score = np.zeros(len(parents))
        masses = masses[0][legal], masses[1][legal], masses[2][legal]
        all_new = Extensions(parents, tokens, *masses, columns, values, np.full(len(parents), -1), score)
        columns[PREFIX] = prefixes

        columns[SPELLING] = np.zeros(len(parents), dtype=np.int64)  # the bound has no look-ahead
        self._judge(all_new)
        hopeful = np.flatnonzero(all_new.score + max(0.0, self._word_gain()) >= floor[parents // capacity])
        all_new, reached = all_new.take(hopeful), reached[hopeful]

        still = spelling.unfinished(reached)
        inside_at = np.flatnonzero(still >= 0)
        inside = all_new.take(inside_at)
        inside.ints[SPELLING] = still[inside_at]
        at, words = spelling.words(reached)
        complete = all_new.take(at)
        complete.word = words
        complete.ints[HISTORY] = rows.histories.find(complete.ints[HISTORY], words)
        alive = np.sort(_slots(ints[PREFIX], ints[HISTORY], rows.histories.size))
        inside = inside.take(~_living(inside, alive, rows.histories.size))
        complete = complete.take(~_living(complete, alive, rows.histories.size))
        if knowledge.gain < np.inf:  # a further word may only lower the score, but for its bonus
            inside = inside.take(inside.score >= floor[inside.parents // capacity])
        knowledge.read_word(complete.ints, complete.floats, complete.word)
        complete.ints[SPELLING] = np.zeros(len(complete), dtype=np.int64)
        self._judge(complete)
        if knowledge.neural_lm is not None:
            if self._bounds_matter:
                complete = complete.take(complete.score >= floor[complete.parents // capacity])
            knowledge.read_word_neural(complete.ints, complete.floats, complete.word)
            self._judge(complete)
        complete = self._merge(ints, inside, complete, rows.histories.size)
        self._judge(inside)
        new = _joined(inside, complete)
        new = new.take(new.score >= floor[new.parents // capacity])
        return new.take(np.argsort(new.parents // capacity, kind="stable"))

    def _word_gain(self) -> float:
        return self._knowledge.gain - self._knowledge.options.beta

    def _judge(self, new: Extensions) -> None:
        """Computes the scores of hypotheses from their columns."""
        new.floats[LANGUAGE] = self._knowledge.language(new.ints, new.floats)
        new.score = new.mass + new.floats[LANGUAGE]

    def _merge(self, ints: np.ndarray, inside: Extensions, complete: Extensions, histories: int) -> Extensions:
        """Joins pairs of equal tokens and words: one has just completed a word, the other is inside of the next one.

        Returns the completed ones that have no such partner.
        """
        spelling = self._knowledge.spelling
        assert spelling is not None
        if not len(inside) or not len(complete):
            return complete
        place = (inside.parents // 1, inside.tokens)
        prefix = ints[PREFIX][place[0]] * self._vocabulary + place[1]
        keys = _slots(prefix, inside.ints[HISTORY], histories)
        wanted = _slots(
            ints[PREFIX][complete.parents] * self._vocabulary + complete.tokens, complete.ints[HISTORY], histories
        )
        order = np.argsort(keys, kind="stable")
        found = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        same = (keys[order][found] == wanted) & (complete.ints[HISTORY] >= 0)
        if not same.any():
            return complete
        partners = order[found[same]]
        inside.ints[SPELLING][partners] = spelling.with_root(inside.ints[SPELLING][partners])
        return complete.take(~same)


def _slots(prefixes: np.ndarray, histories: np.ndarray, count: int) -> np.ndarray:
    """Returns a number for each pair of a prefix and a history."""
    return prefixes * count + histories


def _living(new: Extensions, alive: np.ndarray, histories: int) -> np.ndarray:
    """Returns which hypotheses live already, in rows whose slots are `alive` (sorted)."""
    known = (new.ints[PREFIX] >= 0) & (new.ints[HISTORY] >= 0)
    return known & _among(_slots(new.ints[PREFIX], new.ints[HISTORY], histories), alive)


def _among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Returns which keys are in a sorted array, bool [n]."""
    if not len(known):
        return np.zeros(len(keys), dtype=bool)
    found = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return known[found] == keys


def _existing(rows: Rows, ints: np.ndarray, stays: Stays, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs of a row and a child of its prefix that lives too, both as flat indices of rows.

    The row may lead to words that the child's rows do not have.
    """
    joined = stays.joined
    capacity = rows.capacity
    children = joined[rows.rows_of(ints[PREFIX][joined]) == joined % capacity]  # one row for each prefix
    by_prefix = np.argsort(ints[PREFIX], kind="stable")
    prefixes = ints[PREFIX][by_prefix]
    first = np.searchsorted(prefixes, ints[PARENT][children], "left")
    counts = np.searchsorted(prefixes, ints[PARENT][children], "right") - first
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return by_prefix[np.repeat(first, counts) + within], np.repeat(children, counts)


def _joined(first: Extensions, second: Extensions) -> Extensions:
    """Returns two lots of hypotheses as one."""
    return Extensions(
        np.concatenate([first.parents, second.parents]),
        np.concatenate([first.tokens, second.tokens]),
        np.concatenate([first.blank_mass, second.blank_mass]),
        np.concatenate([first.token_mass, second.token_mass]),
        np.concatenate([first.mass, second.mass]),
        {name: np.concatenate([first.ints[name], second.ints[name]]) for name in first.ints},
        {name: np.concatenate([first.floats[name], second.floats[name]]) for name in first.floats},
        np.concatenate([first.word, second.word]),
        np.concatenate([first.score, second.score]),
    )
