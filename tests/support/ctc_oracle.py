"""CTC decoding by its definition: all alignments, all token sequences, all ways to read words in them.

Slow and obvious. It takes the same parts as `CtcDecoder`, and shares no code with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, product

import numpy as np

from workbench.decoding.ctc_beam import Lexicon, Phrases, SearchOptions


class TableModel:
    """A language model whose symbols depend on the two before, with random probabilities; some contexts are alike."""

    def __init__(self, symbols: int, rng: np.random.Generator, order: int = 3, forbids: float = 0.0):
        self.symbols, self.order, self._forbids = symbols, order, forbids
        self._rng = rng
        self._numbers: dict[tuple[int, ...], int] = {(-1,): 0}
        self._contexts: list[tuple[int, ...]] = [(-1,)]
        self._rows: list[np.ndarray] = [self._row()]
        self.unigrams = np.log(rng.dirichlet(np.ones(symbols)))
        self.asked = 0

    def _row(self) -> np.ndarray:
        row = np.log(self._rng.dirichlet(np.full(self.symbols + 1, 0.5)) + 1e-6)
        if self._forbids:
            row[self._rng.random(len(row)) < self._forbids] = -np.inf
        return row

    @property
    def start(self) -> int:
        return 0

    def _state(self, context: tuple[int, ...]) -> int:
        if context not in self._numbers:
            self._numbers[context] = len(self._contexts)
            self._contexts.append(context)
            self._rows.append(self._row())
        return self._numbers[context]

    def advance(self, states: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.asked += len(states)
        values = np.array([self._rows[a][b] for a, b in zip(states.tolist(), symbols.tolist())], dtype=np.float64)
        after = [
            self._state((*self._contexts[a], b)[1 - self.order :]) for a, b in zip(states.tolist(), symbols.tolist())
        ]
        return values, np.array(after, dtype=np.int64)

    def final(self, states: np.ndarray) -> np.ndarray:
        return np.array([self._rows[state][-1] for state in states.tolist()], dtype=np.float64)

    def text(self, symbols: Sequence[int]) -> float:
        """ln P of a whole text and its end."""
        total, context = 0.0, (-1,)
        for symbol in symbols:
            total += self._rows[self._state(context)][symbol]
            context = (*context, symbol)[1 - self.order :]
        return float(total + self._rows[self._state(context)][-1])


def acoustics(log_probs: np.ndarray, blank: int, recombination: str) -> dict[tuple[int, ...], float]:
    """Of every token sequence, ln of the sum or the maximum over its alignments."""
    frames, vocabulary = log_probs.shape
    found: dict[tuple[int, ...], list[float]] = {}
    for path in product(range(vocabulary), repeat=frames):
        tokens = tuple(token for token, _ in groupby(path) if token != blank)
        found.setdefault(tokens, []).append(float(sum(log_probs[t, token] for t, token in enumerate(path))))
    combine = np.logaddexp.reduce if recombination == "sum" else max
    return {tokens: float(combine(masses)) for tokens, masses in found.items()}


def readings(tokens: tuple[int, ...], lexicon: Lexicon) -> set[tuple[int, ...]]:
    """All sequences of words whose spellings, one after another, are these tokens."""
    if not tokens:
        return {()}
    found = set()
    for word, spellings in enumerate(lexicon.pronunciations):
        for spelling in spellings:
            if tokens[: len(spelling)] == spelling:
                found |= {(word, *rest) for rest in readings(tokens[len(spelling) :], lexicon)}
    return found


def boosted(symbols: Sequence[int], phrases: Phrases) -> int:
    """How many symbols are in phrases: leftmost, longest, not overlapping."""
    at = covered = 0
    while at < len(symbols):
        fits = [len(phrase) for phrase in phrases.sequences if tuple(symbols[at : at + len(phrase)]) == phrase]
        covered += max(fits, default=0)
        at += max(fits, default=1)
    return covered


def every_hypothesis(
    logits: np.ndarray,
    blank: int,
    options: SearchOptions,
    token_lm: TableModel | None = None,
    lexicon: Lexicon | None = None,
    word_lm: TableModel | None = None,
    neural_lm: TableModel | None = None,
    phrases: Phrases | None = None,
) -> dict[tuple[tuple[int, ...], tuple[str, ...] | None], float]:
    """The scores of all hypotheses with a probability above 0: by tokens and words."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    found: dict[tuple[tuple[int, ...], tuple[str, ...] | None], float] = {}
    for tokens, acoustic in acoustics(log_probs, blank, options.recombination).items():
        if acoustic == -np.inf:
            continue
        for words in readings(tokens, lexicon) if lexicon else {()}:
            models = (
                (token_lm, options.alpha, tokens),
                (word_lm, options.gamma, words),
                (neural_lm, options.gamma, words),
            )
            parts = [(weight, model.text(symbols)) for model, weight, symbols in models if model and weight]
            if any(text == -np.inf for _, text in parts):
                continue  # forbidden, also with a weight below 0
            score = acoustic + options.beta * len(tokens) + sum(weight * text for weight, text in parts)
            if lexicon:
                score += options.word_bonus * len(words)
            if phrases:
                score += options.boost_score * boosted(words if lexicon else tokens, phrases)
            found[tokens, tuple(lexicon.words[word] for word in words) if lexicon else None] = score
    return found
