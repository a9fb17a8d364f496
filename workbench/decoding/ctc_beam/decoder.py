"""The face of the CTC beam search: a decoder with its vocabulary, its options and its sources of knowledge.

It knows arrays, not models: logits of any runtime or file. Graves and Jaitly, "Towards End-to-End Speech Recognition
with Recurrent Neural Networks", ICML 2014, and Hannun et al., arXiv 1408.2873, describe prefix beam search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.options import check_value, option_specs
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.lexicon import Lexicon
from workbench.decoding.ctc_beam.logits import log_probabilities
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_beam.phrases import PhraseCounter, Phrases
from workbench.decoding.language_model import LanguageModel

Slot = tuple[tuple[int, ...], tuple[int, ...]]  # tokens, and the words so far


@dataclass
class SearchState:
    """A search that waits for more frames."""

    slots: dict[Slot, frozenset[int]]  # where each is in the trie of the lexicon
    masses: dict[tuple[int, ...], tuple[float, float]]  # ln of the alignments that end in a blank, in the last token
    texts: dict[Any, Any] = field(default_factory=dict)


class CtcDecoder:
    """Finds the best token sequences for the outputs of a CTC head.

    Args:
        vocabulary: number of tokens, with the blank.
        blank: its id.
        options: the width of the search and the weights.
        token_lm: a language model whose symbols are the token ids.
        lexicon: words and their spellings; a hypothesis is then a pair of tokens and words.
        word_lm: an n-gram model whose symbols are the indices of the lexicon's words.
        neural_lm: a neural model whose symbols are the indices of the lexicon's words.
        phrases: sequences of token ids, or of indices of the lexicon's words, that earn `options.boost_score`.

    Raises `BadInput` for options or parts that do not fit.
    """

    def __init__(
        self,
        vocabulary: int,
        blank: int,
        options: SearchOptions | None = None,
        *,
        token_lm: LanguageModel | None = None,
        lexicon: Lexicon | None = None,
        word_lm: LanguageModel | None = None,
        neural_lm: LanguageModel | None = None,
        phrases: Phrases | None = None,
    ):
        self.vocabulary, self.blank, self.options = vocabulary, blank, options or SearchOptions()
        self.token_lm, self.lexicon, self.word_lm, self.neural_lm = token_lm, lexicon, word_lm, neural_lm
        self.phrases = phrases
        _check(self)
        self._counter: PhraseCounter | None = None
        if phrases is not None:
            self._counter = PhraseCounter(phrases, vocabulary if lexicon is None else len(lexicon.words))
        self._trie: list[tuple[dict[int, int], list[int]]] = [({}, [])]
        for word, spellings in enumerate(lexicon.pronunciations if lexicon else ()):
            for spelling in spellings:
                node = 0
                for token in spelling:
                    if token not in self._trie[node][0]:
                        self._trie[node][0][token] = len(self._trie)
                        self._trie.append(({}, []))
                    node = self._trie[node][0][token]
                if word not in self._trie[node][1]:
                    self._trie[node][1].append(word)

    def decode(self, batch: Sequence[np.ndarray]) -> list[list[Hypothesis]]:
        """Returns the n-best hypotheses of each recording, best first.

        The result of a recording does not depend on the others.

        Args:
            batch: logits or log-probabilities [frames, vocabulary] of each recording.

        Raises `BadInput` for logits that cannot be used.
        """
        results = []
        for number, logits in enumerate(batch):
            what = f"the logits of recording {number + 1}" if len(batch) > 1 else "the logits"
            log_probs = log_probabilities(logits, self.vocabulary, what=what)
            if not len(log_probs):
                raise BadInput(f"{what} have no frames; expected at least one")
            state = self.begin()
            self._go_on(state, log_probs)
            results.append(self.finish(state))
        return results

    def begin(self) -> SearchState:
        """Returns a search for one recording that comes in chunks."""
        return SearchState({((), ()): frozenset([0])}, {(): (0.0, -np.inf)})

    def advance(self, state: SearchState, logits: np.ndarray) -> None:
        """Goes on with the next frames of the recording, [frames, vocabulary]."""
        self._go_on(state, log_probabilities(logits, self.vocabulary))

    def finish(self, state: SearchState) -> list[Hypothesis]:
        """Returns the n-best hypotheses if the recording ends here, best first. The search can go on afterwards."""
        found = []
        for (tokens, words), nodes in state.slots.items():
            if self.lexicon is None or 0 in nodes:
                found.append(self._hypothesis(state, tokens, words, ended=True))
        found.sort(key=lambda each: (-each.score, each.tokens, each.words))
        return found[: self.options.nbest]

    def _go_on(self, state: SearchState, log_probs: np.ndarray) -> None:
        for row in log_probs:
            self._step(state, row.tolist())

    def _step(self, state: SearchState, row: list[float]) -> None:
        add = np.logaddexp if self.options.recombination == "sum" else max
        blank = self.blank
        masses: dict[tuple[int, ...], tuple[float, float]] = {}
        slots: dict[Slot, frozenset[int]] = dict(state.slots)
        tokens = [c for c in range(self.vocabulary) if c != blank and row[c] > -np.inf]
        if self.options.tokens_per_frame is not None:
            tokens = sorted(tokens, key=lambda c: (-row[c], c))[: self.options.tokens_per_frame]
        for y, (b, nb) in state.masses.items():
            stays = add(b, nb) + row[blank], (nb + row[y[-1]] if y else -np.inf)
            if y and y[:-1] in state.masses:
                before = state.masses[y[:-1]]
                arrives = (before[0] if y[-2:] == (y[-1],) * 2 else add(*before)) + row[y[-1]]
                stays = stays[0], add(stays[1], arrives)
            masses[y] = stays
        for (y, words), nodes in state.slots.items():
            b, nb = state.masses[y]
            for c in tokens:
                longer = y + (c,)
                if longer not in state.masses:
                    masses[longer] = -np.inf, (b if y[-1:] == (c,) else add(b, nb)) + row[c]
                if self.lexicon is None:
                    slots[longer, words] = frozenset([0])
                    continue
                reached = {self._trie[node][0][c] for node in nodes if c in self._trie[node][0]}
                inside = frozenset(node for node in reached if self._trie[node][0])
                if inside:
                    slots[longer, words] = slots.get((longer, words), frozenset()) | inside
                for word in {word for node in reached for word in self._trie[node][1]}:
                    key = longer, words + (word,)
                    slots[key] = slots.get(key, frozenset()) | {0}
        state.masses, everything = masses, slots
        scored = [(self._hypothesis(state, *slot).score, slot) for slot in everything]
        scored = sorted((each for each in scored if each[0] > -np.inf), key=lambda each: -each[0])
        kept = scored[: max(self.options.beam_size, self.options.nbest)]
        if self.options.threshold is not None and kept:
            kept = [each for each in kept if each[0] >= kept[0][0] - self.options.threshold]
        if self.lexicon is not None:  # the last whole hypotheses stay
            whole = [each for each in scored if each[1] in state.slots and 0 in state.slots[each[1]]]
            kept += [each for each in whole[: self.options.nbest] if each not in kept]
        state.slots = {slot: everything[slot] for _, slot in kept}
        state.masses = {y: masses[y] for y, _ in state.slots}

    def _hypothesis(
        self, state: SearchState, tokens: tuple[int, ...], words: tuple[int, ...], ended: bool = False
    ) -> Hypothesis:
        options = self.options
        add = np.logaddexp if options.recombination == "sum" else max
        units = tokens if self.lexicon is None else words
        boost = 0.0
        if self._counter is not None and options.boost_score:
            node, earned = self._counter.advance_one(0, units)
            boost = options.boost_score * (earned + int((self._counter.at_end if ended else self._counter.depth)[node]))
        return Hypothesis(
            tokens,
            None if self.lexicon is None else tuple(self.lexicon.words[word] for word in words),
            float(add(*state.masses[tokens])),
            self._lm(state, "token", self.token_lm, options.alpha, tokens, ended),
            self._lm(state, "word", self.word_lm, options.gamma, words, ended),
            self._lm(state, "neural", self.neural_lm, options.gamma, words, ended),
            options.beta * len(tokens) + options.word_bonus * len(words),
            boost,
        )

    def _lm(
        self,
        state: SearchState,
        name: str,
        model: LanguageModel | None,
        weight: float,
        symbols: tuple[int, ...],
        ended: bool,
    ) -> float:
        if model is None or weight == 0.0:
            return 0.0
        if (name, symbols) not in state.texts:
            total, at = 0.0, model.start
            for symbol in symbols:
                value, after = model.advance(np.array([at]), np.array([symbol]))
                total, at = total + weight * float(value[0]), int(after[0])
            state.texts[name, symbols] = total, at
        total, at = state.texts[name, symbols]
        return total + (weight * float(model.final(np.array([at]))[0]) if ended else 0.0)


def _check(decoder: CtcDecoder) -> None:
    """Raises `BadInput` for options or parts that do not fit each other."""
    vocabulary, blank = decoder.vocabulary, decoder.blank
    for spec in option_specs(SearchOptions):
        value = getattr(decoder.options, spec.name)
        check_value(spec, value, f"option {spec.name} of the beam search is {value!r:.80}")
    if vocabulary < 2:
        raise BadInput(f"the vocabulary has {vocabulary} tokens; expected the blank and at least one other")
    if not 0 <= blank < vocabulary:
        raise BadInput(f"the blank is {blank}; expected a token id from 0 to {vocabulary - 1}")
    if decoder.lexicon is None and (decoder.word_lm is not None or decoder.neural_lm is not None):
        raise BadInput("a language model of words needs a lexicon, which spells the words in tokens")
    if decoder.lexicon is not None:
        decoder.lexicon.check(vocabulary, blank)
    if decoder.phrases is not None and decoder.lexicon is None:
        decoder.phrases.check(vocabulary, "token ids")
    elif decoder.phrases is not None and decoder.lexicon is not None:
        decoder.phrases.check(len(decoder.lexicon.words), "indices of the lexicon's words")
