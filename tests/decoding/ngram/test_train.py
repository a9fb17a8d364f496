"""N-gram training: probabilities against Kneser-Ney formulas written with dictionaries, and their sums."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.slow_ngram import log10_of
from workbench.core.errors import BadInput
from workbench.decoding.ngram.arpa_reading import read_arpa
from workbench.decoding.ngram.arpa_writing import write_arpa
from workbench.decoding.ngram.model import NgramModel
from workbench.decoding.ngram.tables import NgramTables
from workbench.decoding.ngram.train import train

Ngram = tuple[str, ...]
SENTENCES = st.lists(st.lists(st.sampled_from("abcde"), max_size=7), min_size=1, max_size=30)


class SlowKneserNey:
    """Modified Kneser-Ney smoothing, one probability at a time (Chen and Goodman, 1999)."""

    def __init__(self, sentences: list[list[str]], order: int):
        marked = [("<s>", *sentence, "</s>") for sentence in sentences if sentence]
        self.order = min(order, max(map(len, marked)))
        raw = Counter(
            sentence[first : first + length]
            for sentence in marked
            for length in range(1, self.order + 1)
            for first in range(len(sentence) - length + 1)
        )
        self.words = {ngram[0] for ngram in raw if len(ngram) == 1} - {"<s>"} | {"<unk>"}
        self.counts: dict[Ngram, int] = {}
        for ngram, count in raw.items():
            counts_occurrences = len(ngram) == self.order or ngram[0] == "<s>"
            self.counts[ngram] = count if counts_occurrences else sum(1 for longer in raw if longer[1:] == ngram)
        del self.counts["<s>",]
        self.discounts = {length: self._discounts(length) for length in range(1, self.order + 1)}

    def _discounts(self, length: int) -> list[float]:
        of = Counter(count for ngram, count in self.counts.items() if len(ngram) == length)
        if not (of[1] and of[2] and of[3]):
            return [0.5, 1.0, 1.5]
        share = of[1] / (of[1] + 2 * of[2])
        discounts = [c - (c + 1) * share * of[c + 1] / of[c] for c in (1, 2, 3)]
        return discounts if min(discounts) > 0 else [0.5, 1.0, 1.5]

    def probability(self, word: str, history: Ngram) -> float:
        followers = [self.counts.get((*history, each), 0) for each in self.words]
        total = sum(followers)
        shorter = self.probability(word, history[1:]) if history else 1 / len(self.words)
        if not total:
            return shorter
        discounts = self.discounts[len(history) + 1]
        freed = sum(discounts[min(count, 3) - 1] for count in followers if count)
        count = self.counts.get((*history, word), 0)
        own = count - discounts[min(count, 3) - 1] if count else 0.0
        return own / total + freed / total * shorter


def entries_of(tables: NgramTables) -> dict[Ngram, tuple[float, float]]:
    return {
        tuple(tables.words[word] for word in words): (log10, backoff)
        for ngrams in tables.orders
        for words, log10, backoff in zip(ngrams.words.tolist(), ngrams.log10, ngrams.backoff)
    }


@given(SENTENCES.filter(any), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_trained_probabilities_match_the_kneser_ney_formulas(sentences: list[list[str]], order: int):
    slow, trained = SlowKneserNey(sentences, order), train(sentences, order)
    assert trained.tables.order == slow.order
    entries = entries_of(trained.tables)
    histories = [
        (*start, *words)
        for length in range(slow.order)
        for start in ((), ("<s>",))
        for words in product("ab", repeat=length)
        if length + len(start) < slow.order
    ]
    for history in histories:
        total = 0.0
        for word in slow.words:
            probability = 10 ** log10_of(entries, word, history)
            assert probability == pytest.approx(slow.probability(word, history), rel=1e-9)
            total += probability
        assert total == pytest.approx(1, abs=1e-9)


def text_of_words(count: int, seed: int = 5) -> list[list[str]]:
    """Returns sentences in which each word depends on the one before, so that n-grams repeat."""
    draw = np.random.default_rng(seed)
    rare = [*range(40), *[*range(40, 60)] * 2, *[*range(60, 70)] * 3, *[*range(70, 75)] * 4]
    sentences = []
    for number in range(count):
        words = [int(draw.integers(60))]
        for _ in range(int(draw.integers(20))):
            words.append((words[-1] * 7 + int(draw.geometric(0.4))) % 60)
        sentences.append([f"w{word}" for word in words] + [f"rare{word}" for word in rare[number : number + 1]])
    return sentences


def test_probabilities_sum_to_one_in_every_state_before_and_after_writing(tmp_path: Path):
    trained = train(text_of_words(400), 4)
    assert trained.notes == () and trained.sentences == 400
    write_arpa(trained.tables, tmp_path / "lm.arpa.gz", zipped=True)
    read = read_arpa(tmp_path / "lm.arpa.gz")
    assert read.words == trained.tables.words
    for order, expected in zip(read.orders, trained.tables.orders, strict=True):
        np.testing.assert_array_equal(order.words, expected.words)
        np.testing.assert_allclose(order.log10, expected.log10, rtol=1e-8)
        np.testing.assert_allclose(order.backoff, expected.backoff, rtol=1e-8)
    for tables, close in ((trained.tables, 1e-12), (read, 1e-7)):
        words = [word for word in tables.words if word not in ("<s>", "</s>")]
        model = NgramModel(tables, words)
        states, symbols = np.divmod(np.arange(model.states * len(words)), len(words))
        ln = model.advance(states, symbols)[0].reshape(model.states, -1)
        sums = np.exp(ln).sum(axis=1) + np.exp(model.final(np.arange(model.states)))
        np.testing.assert_allclose(sums, 1, rtol=0, atol=close)


def test_words_outside_the_vocabulary_become_unk():
    sentences = [["a", "b", "x"], ["a", "y", "b"], ["<UNK>", "a"]]
    trained = train(sentences, 3, vocabulary=["a", "b", "c"])
    assert trained.tables.words == ("<unk>", "<s>", "</s>", "a", "b", "c")
    assert (trained.sentences, trained.tokens, trained.unknown) == (3, 8, 3)
    entries = entries_of(trained.tables)
    assert ("b", "<unk>") in entries and ("a", "<unk>") in entries
    for history in ((), ("a",), ("<s>", "a"), ("<unk>",)):
        total = sum(10 ** log10_of(entries, word, history) for word in trained.tables.words if word != "<s>")
        assert total == pytest.approx(1)
    assert 10 ** log10_of(entries, "c", ("a",)) > 0


def test_order_is_limited_by_the_longest_sentence_with_a_note():
    trained = train([["yes"], ["no"], []], 6)
    assert trained.tables.order == 3
    assert trained.notes[0] == "the model has order 3: the text has no longer sentence"
    assert "too few or too regular" in trained.notes[1]


def test_training_on_the_same_text_gives_an_identical_file(tmp_path: Path):
    for name in ("a.arpa.gz", "b.arpa.gz"):
        write_arpa(train(text_of_words(30), 3).tables, tmp_path / name, zipped=True)
    assert (tmp_path / "a.arpa.gz").read_bytes() == (tmp_path / "b.arpa.gz").read_bytes()


@pytest.mark.parametrize(
    "sentences, order, sentence",
    [
        ([], 3, "the text has no words"),
        ([[], []], 3, "the text has no words"),
        ([["a"], ["b", "</s>"]], 3, "sentence 2 of the text contains <s> or </s>"),
        ([["a b"]], 3, "the text has the word 'a b'; expected words without white space"),
        ([["a"]], 0, "the order is 0; expected 1 to 6"),
        ([["a"]], 7, "the order is 7; expected 1 to 6"),
    ],
)
def test_invalid_training_text_or_order_is_refused(sentences: list[list[str]], order: int, sentence: str):
    with pytest.raises(BadInput) as caught:
        train(sentences, order)
    assert str(caught.value).startswith(sentence)


def test_unseen_word_is_less_likely_than_any_seen_word():
    trained = train(text_of_words(200), 2)
    entries = entries_of(trained.tables)
    unknown = log10_of(entries, "<unk>", ())
    assert all(unknown < log10 for ngram, (log10, _) in entries.items() if len(ngram) == 1 and ngram[0][0] == "w")
    assert math.isfinite(unknown)
