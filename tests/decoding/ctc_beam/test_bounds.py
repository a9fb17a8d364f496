"""The bounds that let a search skip frames and pairs do not change its result."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.decoding.ctc_beam import CtcDecoder, Lexicon, Phrases, SearchOptions
from workbench.decoding.ctc_beam.lexicon_automaton import LexiconAutomaton
from workbench.decoding.ngram.model import NgramModel
from workbench.decoding.ngram.train import train

VOCABULARY, BOUNDARY = 8, 1


def peaked_problem(seed: int, threshold: float | None = None) -> tuple[CtcDecoder, list[np.ndarray]]:
    """Returns a narrow search with n-gram models over mostly blank outputs, so that many frames are quiet."""
    rng = np.random.default_rng(seed)
    spellings: dict[tuple[int, ...], None] = {}
    while len(spellings) < 6:
        spellings[(*rng.integers(2, VOCABULARY, size=rng.integers(1, 4)).tolist(), BOUNDARY)] = None
    names = tuple(f"w{index}" for index in range(len(spellings)))
    lexicon = Lexicon(names, tuple((spelling,) for spelling in spellings))
    sentences = [rng.integers(len(names), size=rng.integers(1, 6)).tolist() for _ in range(20)]
    spelled = [[token for word in sentence for token in list(spellings)[word]] for sentence in sentences]
    tokens = [str(token) for token in range(VOCABULARY)]
    token_lm = NgramModel(train([[str(token) for token in each] for each in spelled], 3).tables, tokens)
    word_lm = NgramModel(train([[names[word] for word in each] for each in sentences], 2).tables, names)
    batch = []
    for sentence in spelled[:3]:
        logits = rng.normal(scale=1.5, size=(3 * len(sentence) + 4, VOCABULARY))
        logits[:, 0] += rng.choice([4.0, 8.0])
        logits[np.arange(len(sentence)) * 3, sentence] += rng.choice([7.0, 14.0])
        batch.append(logits)
    with_words, size = rng.random() < 0.6, int(rng.choice([1, 2, 4, 9]))
    options = SearchOptions(
        size,
        nbest=min(size, 2),
        beta=float(rng.normal()),
        word_bonus=float(rng.normal()),
        boost_score=0.7,
        threshold=threshold,
    )
    phrases = Phrases((tuple(rng.integers(2, 6, size=2).tolist()),)) if rng.random() < 0.3 else None
    decoder = CtcDecoder(
        VOCABULARY,
        0,
        options,
        token_lm=token_lm if rng.random() < 0.7 else None,
        lexicon=lexicon if with_words else None,
        word_lm=word_lm if with_words else None,
        phrases=phrases,
    )
    return decoder, batch


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_search_with_and_without_bounds_gives_the_same_result(seed: int) -> None:
    decoder, batch = peaked_problem(seed)
    hypotheses = decoder.decode(batch)
    assert decoder._knowledge.bounded
    decoder._knowledge.bounded = False
    assert decoder.decode(batch) == hypotheses


@pytest.mark.parametrize(
    ("pronunciations", "certain"),
    [
        ((((1, 3),), ((1, 2, 3),), ((2, 3),)), True),
        ((((1, 3),), ((1, 3),)), False),  # homophones
        ((((1,),), ((1, 2),)), False),  # a word begins with another
        ((((1, 2), (2, 1)), ((1, 1),)), True),
    ],
)
def test_lexicon_is_unambiguous_if_every_token_sequence_gives_one_word_sequence(
    pronunciations: tuple, certain: bool
) -> None:
    spelling = LexiconAutomaton(Lexicon(tuple("abc"[: len(pronunciations)]), pronunciations), 4)
    assert spelling.is_unambiguous == certain
    outcomes = []
    for tokens in product(range(1, 4), repeat=4):
        reached = {(0, ())}  # states and words
        for token in tokens:
            after = set()
            for state, words in reached:
                (node,) = spelling.step(np.array([state]), np.array([token])).tolist()
                if node >= 0:
                    (still,) = spelling.unfinished(np.array([node])).tolist()
                    after |= {(still, words)} if still >= 0 else set()
                    after |= {(0, (*words, word)) for word in spelling.words(np.array([node]))[1].tolist()}
            reached = after
        outcomes.append(len(reached))
    assert (max(outcomes) <= 1) == certain
