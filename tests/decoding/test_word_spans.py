"""The token span of each word."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.decoding.ctc_beam.lexicon import Lexicon
from workbench.decoding.word_spans import word_spans

LEXICON = Lexicon(("a", "ab", "b"), (((1,), (1, 1)), ((1, 2),), ((2,), (1, 2, 2))))
SPELLINGS = st.lists(
    st.sampled_from([(word, s) for word, all_ in zip(LEXICON.words, LEXICON.pronunciations) for s in all_]), max_size=6
)


@given(SPELLINGS)
def test_word_span_tokens_are_a_pronunciation_of_the_word(spellings: list[tuple[str, tuple[int, ...]]]) -> None:
    tokens = [token for _, spelling in spellings for token in spelling]
    words = [word for word, _ in spellings]
    spans = word_spans(tokens, words, LEXICON)
    assert [0, *(end for _, end in spans)] == [*(first for first, _ in spans), len(tokens)]
    for word, (first, end) in zip(words, spans, strict=True):
        assert tuple(tokens[first:end]) in LEXICON.pronunciations[LEXICON.words.index(word)]
    assert all(one[1] == two[0] for one, two in pairwise(spans))


def test_earlier_words_get_the_longest_spelling() -> None:
    assert word_spans([1, 1, 2], ["a", "b"], LEXICON) == [(0, 2), (2, 3)]
    lexicon = Lexicon(("a", "b"), (((1,), (1, 2), (1, 2, 3)), ((2, 3, 4), (3, 4), (4,))))
    assert word_spans([1, 2, 3, 4], ["a", "b"], lexicon) == [(0, 3), (3, 4)]
    assert word_spans([1, 2, 3, 4, 3, 4], ["a", "b", "b"], lexicon) == [(0, 3), (3, 4), (4, 6)]
    assert word_spans([1, 2, 3, 4], ["a", "b"], Lexicon(("a", "b"), (lexicon.pronunciations[0], ((3, 4),)))) == [
        (0, 2),  # the longest match would leave too few tokens for the next word
        (2, 4),
    ]


def test_words_of_a_lexicon_are_numbered_once_for_all_hypotheses() -> None:
    """A list of many hypotheses with a lexicon of 200,000 words took 50 ms for each."""
    lexicon = Lexicon(LEXICON.words, LEXICON.pronunciations)
    word_spans([1, 1, 2], ["a", "b"], lexicon)
    symbols = lexicon.symbols
    word_spans([2], ["b"], lexicon)
    assert lexicon.symbols is symbols == {"a": 0, "ab": 1, "b": 2}


def test_tokens_that_do_not_spell_the_words_raise_an_error() -> None:
    with pytest.raises(ValueError, match="do not spell"):
        word_spans([1, 2, 2], ["a"], LEXICON)
