"""The neural language model over words: word sums against whole texts, number of calls, and the bounded cache."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.decoding.language_model import LanguageModel
from workbench.decoding.neural import NeuralModel
from workbench.session.values import TextScore

WORDS = ("one", "two", "t", "wo", "one two", "'t")


class Texts:
    """Scores texts in tokens of two characters, so that a word changes the tokens of the word before."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], bool]] = []

    def __call__(self, texts: Sequence[str], *, end: bool = True) -> list[TextScore]:
        self.asked.append((tuple(texts), end))
        return [self.score(text, end) for text in texts]

    def score(self, text: str, end: bool) -> TextScore:
        pieces = [text[place : place + 2] for place in range(0, len(text), 2)]
        logprobs = [-random.Random(repr(pieces[:count])).expovariate(1.0) for count in range(1, len(pieces) + 1)]
        last = -random.Random(text).expovariate(1.0)
        return TextScore(np.zeros(len(pieces), np.int64), np.array(logprobs), last if end else None)


def batch_scores(model: LanguageModel, histories: Sequence[Sequence[int]]) -> list[float]:
    """Returns each history's score with its end, computed word by word in a batch."""
    states = np.full(len(histories), model.start, dtype=np.int64)
    scores = np.zeros(len(histories))
    for place in range(max(map(len, histories), default=0)):
        rows = np.array([row for row, history in enumerate(histories) if place < len(history)])
        words = np.array([histories[row][place] for row in rows])
        added, states[rows] = model.advance(states[rows], words)
        scores[rows] += added
    return (scores + model.final(states)).tolist()


@given(
    histories=st.lists(st.lists(st.integers(0, len(WORDS) - 1), max_size=5), max_size=8),
    most=st.sampled_from([1, 3, 99]),
)
def test_sum_of_word_scores_equals_the_whole_text_score(histories: list[list[int]], most: int) -> None:
    """For any size of the cache."""
    texts = Texts()
    model = NeuralModel(texts, WORDS, capacity=most)
    for _ in range(2):
        expected = [texts.score(" ".join(WORDS[word] for word in history), True).total for history in histories]
        assert batch_scores(model, histories) == pytest.approx(expected, abs=1e-12)


def test_missing_texts_are_scored_in_one_call_and_cached() -> None:
    texts = Texts()
    model = NeuralModel(texts, WORDS)
    start = np.full(4, model.start)
    first, states = model.advance(start, np.array([0, 1, 0, 4]))
    assert states[0] == states[2] and len(set(states.tolist())) == 3 and first[0] == first[2]
    assert texts.asked == [(("one", "two", "one two"), False)]
    repeated, same = model.advance(start, np.array([4, 0, 1, 1]))
    assert len(texts.asked) == 1 and same.tolist() == states[[3, 0, 1, 1]].tolist()
    assert repeated.tolist() == first[[3, 0, 1, 1]].tolist() and repeated.dtype == np.float64 and same.dtype == np.int64
    _, other = model.advance(states[:1], np.array([1]))
    assert other[0] != states[3], "another history with the same text"
    model.advance(np.array([states[0], states[3]]), np.array([0, 0]))
    assert texts.asked[1:] == [(("one two",), False), (("one one", "one two one"), False)]
    ends = model.final(np.array([states[0], model.start, states[0]]))
    assert texts.asked[3:] == [(("one", ""), True)] and ends[0] == ends[2]
    model.final(np.array([model.start]))
    assert (model.calls, model.sequences) == (4, 8) == (len(texts.asked), sum(len(each) for each, _ in texts.asked))
    assert model.tokens == sum(-(-len(text) // 2) for each, _ in texts.asked for text in each)
    assert model.words_of(int(states[3])) == ["one two"] and model.words_of(model.start) == []


def test_empty_input_makes_no_model_call() -> None:
    texts = Texts()
    model = NeuralModel(texts, WORDS)
    empty = np.zeros(0, dtype=np.int64)
    scores, states = model.advance(empty, empty)
    assert len(scores) == len(states) == len(model.final(empty)) == len(texts.asked) == 0


def test_cache_is_bounded_and_evicted_states_stay_valid() -> None:
    texts = Texts()
    model = NeuralModel(texts, WORDS, capacity=10)
    state = np.array([model.start])
    first, first_state = model.advance(state, np.array([1]))
    for word in range(100):
        _, state = model.advance(state, np.array([word % 4]))
    assert max(len(model._states), len(model._sums), len(model._ends)) <= 10
    request_count = len(texts.asked)
    assert model.words_of(int(state[0])) == [WORDS[word % 4] for word in range(100)]
    repeated, _ = model.advance(np.array([model.start]), np.array([1]))
    assert repeated[0] == first[0] and texts.asked[request_count:] == [(("two",), False)], "it was forgotten"
    expected = texts.score("two one", False).total - texts.score("two", False).total
    assert model.advance(first_state, np.array([0]))[0][0] == pytest.approx(expected)


def test_out_of_range_symbol_raises_an_index_error() -> None:
    for wrong in (-1, len(WORDS)):
        with pytest.raises(IndexError, match=f"the symbol is {wrong}; expected 0 to 5"):
            NeuralModel(Texts(), WORDS).advance(np.array([0]), np.array([wrong]))
