"""The trie of a lexicon against its definition: node by node, in the order of the spellings."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.decoding.ctc_beam.lexicon import Lexicon
from workbench.decoding.ctc_beam.lexicon_automaton import LexiconAutomaton
from workbench.decoding.ctc_beam.lexicon_trie import trie_of


def random_lexicon(generator: np.random.Generator, vocabulary: int) -> Lexicon:
    """Returns words with up to three spellings, some of which are equal, also within a word."""
    words = int(generator.integers(1, 40))

    def spelling() -> tuple[int, ...]:
        return tuple(generator.integers(1, vocabulary, size=generator.integers(1, 6)).tolist())

    spellings = tuple(tuple(spelling() for _ in range(generator.integers(1, 4))) for _ in range(words))
    return Lexicon(tuple(f"w{number}" for number in range(words)), spellings)


def definition(lexicon: Lexicon) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """Returns the prefix that each node stands for, and the pairs of a node and a word that ends at it."""
    prefixes: dict[tuple[int, ...], int] = {(): 0}
    ends = set()
    for word, spellings in enumerate(lexicon.pronunciations):
        for spelling in spellings:
            for length in range(1, len(spelling) + 1):
                prefixes.setdefault(spelling[:length], len(prefixes))
            ends.add((prefixes[spelling], word))
    return list(prefixes), sorted(ends)


@pytest.mark.parametrize("seed", range(40))
def test_trie_and_look_ahead_equal_their_definitions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    vocabulary = int(generator.integers(2, 7))
    lexicon = random_lexicon(generator, vocabulary)
    prefixes, ends = definition(lexicon)
    trie = trie_of(lexicon, vocabulary)
    assert trie.nodes == len(prefixes)
    assert list(zip(trie.ends.tolist(), trie.words.tolist())) == ends
    arcs = {
        (prefixes[key // vocabulary], key % vocabulary): prefixes[target]
        for key, target in zip(trie.keys.tolist(), trie.targets.tolist())
    }
    assert arcs == {(prefix[:-1], prefix[-1]): prefix for prefix in prefixes[1:]}
    assert trie.keys.tolist() == sorted(trie.keys.tolist())
    assert trie.parents.tolist() == [prefixes.index(prefix[:-1]) for prefix in prefixes]

    scores = -generator.random(len(lexicon.words))
    best = [
        max(
            (
                scores[word]
                for word, spellings in enumerate(lexicon.pronunciations)
                for spelling in spellings
                if len(spelling) > len(prefix) and spelling[: len(prefix)] == prefix
            ),
            default=-np.inf,
        )
        for prefix in prefixes
    ]
    assert LexiconAutomaton(lexicon, vocabulary, scores).look_ahead.tolist() == [0.0, *best[1:]]
