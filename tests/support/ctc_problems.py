"""Small random problems for the CTC beam search, with everything that it can know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.ctc_oracle import TableModel
from workbench.decoding.ctc_beam import CtcDecoder, Lexicon, Phrases, SearchOptions


@dataclass(frozen=True)
class Problem:
    """A batch of logits, and what decodes it."""

    batch: list[np.ndarray]
    vocabulary: int
    blank: int
    options: SearchOptions
    parts: dict[str, Any]

    def decoder(self) -> CtcDecoder:
        return CtcDecoder(self.vocabulary, self.blank, self.options, **self.parts)


def random_lexicon(rng: np.random.Generator, tokens: list[int]) -> Lexicon:
    """A few words with variants and homophones; all spellings end with the last token in some lexicons."""
    boundary = tokens[-1] if rng.random() < 0.3 and len(tokens) > 1 else None
    letters = [token for token in tokens if token != boundary]
    pronunciations = []
    for _ in range(rng.integers(1, 5)):
        spellings = {}
        for _ in range(rng.integers(1, 4)):
            spelling = tuple(int(token) for token in rng.choice(letters, size=rng.integers(1, 4)))
            spellings[spelling if boundary is None else (*spelling[:2], boundary)] = None
        pronunciations.append(tuple(spellings))
    return Lexicon(tuple(f"w{index}" for index in range(len(pronunciations))), tuple(pronunciations))


def random_problem(seed: int, beam_size: int = 5000, forbids: float = 0.0) -> Problem:
    """A problem that an exhaustive search can solve; its language models forbid that share of what may follow."""
    rng = np.random.default_rng(seed)
    vocabulary = int(rng.integers(2, 5))
    blank = int(rng.integers(vocabulary))
    longest = 6 if vocabulary > 3 else 7
    batch = [
        rng.normal(size=(rng.integers(1, longest), vocabulary)) * rng.choice([0.3, 1.0, 3.0, 8.0])
        for _ in range(rng.integers(1, 4))
    ]
    if rng.random() < 0.3:  # some tokens are impossible in some frames
        for logits in batch:
            logits[rng.random(logits.shape) < 0.2] = -np.inf
            logits[:, rng.integers(vocabulary)] = 0.0
    tokens = [token for token in range(vocabulary) if token != blank]
    lexicon = random_lexicon(rng, tokens) if rng.random() < 0.6 else None
    symbols = vocabulary if lexicon is None else len(lexicon.words)
    phrases = None
    if rng.random() < 0.5:
        units = tokens if lexicon is None else range(symbols)
        sequences = [rng.choice(units, size=rng.integers(1, 4)).tolist() for _ in range(rng.integers(1, 4))]
        phrases = Phrases(tuple(map(tuple, sequences)))
    options = SearchOptions(
        beam_size=beam_size,
        nbest=int(rng.choice([1, 3, 20, 1500])),
        recombination=str(rng.choice(["sum", "max"])),
        alpha=float(rng.choice([0.0, 0.7, 1.3, -0.5], p=[0.1, 0.4, 0.4, 0.1])),
        beta=float(rng.normal()),
        gamma=float(rng.choice([0.6, 1.2, -0.3], p=[0.45, 0.45, 0.1])),
        word_bonus=float(rng.normal()),
        boost_score=float(2 * rng.normal()),
    )
    parts = {
        "token_lm": TableModel(vocabulary, rng, forbids=forbids) if rng.random() < 0.6 else None,
        "lexicon": lexicon,
        "word_lm": TableModel(symbols, rng, forbids=forbids) if lexicon and rng.random() < 0.6 else None,
        "neural_lm": TableModel(symbols, rng, order=5, forbids=forbids) if lexicon and rng.random() < 0.3 else None,
        "phrases": phrases,
    }
    return Problem(batch, vocabulary, blank, options, parts)
