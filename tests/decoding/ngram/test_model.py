"""The n-gram automaton against the definition of a back-off model, word by word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.slow_ngram import OUTSIDE, WORDS, Entries, arpa_text, entries_of_models, ln_parts
from workbench.decoding.ngram.model import NgramModel
from workbench.decoding.ngram.read import read_ngram_model
from workbench.decoding.ngram.tables import Ngrams, NgramTables

SYMBOLS = ["dd", OUTSIDE, "c", "a", "<unk>", "b", "a", "</s>", "<s>"]
DENSE, SPARSE = 1 << 20, 0


def tables_of(entries: Entries) -> NgramTables:
    words = tuple(ngram[0] for ngram in entries if len(ngram) == 1)
    orders = []
    for order in range(1, max(map(len, entries)) + 1):
        ngrams = [ngram for ngram in entries if len(ngram) == order]
        ids = np.array([[words.index(word) for word in ngram] for ngram in ngrams], np.int32).reshape(-1, order)
        numbers = np.array([entries[ngram] for ngram in ngrams]).reshape(-1, 2)
        orders.append(Ngrams(ids, numbers[:, 0], numbers[:, 1]))
    return NgramTables(words, tuple(orders), "drawn.arpa")


def walk(model: NgramModel, sentence: list[int]) -> tuple[list[float], list[int]]:
    state, parts, states = np.array([model.start]), [], [model.start]
    for symbol in sentence:
        ln, state = model.advance(state, np.array([symbol]))
        parts.append(float(ln[0]))
        states.append(int(state[0]))
    return [*parts, float(model.final(state)[0])], states


@given(entries_of_models(), st.lists(st.lists(st.integers(0, len(SYMBOLS) - 1), max_size=9), min_size=1, max_size=4))
@settings(max_examples=120, deadline=None)
def test_word_probabilities_match_the_back_off_definition(entries, sentences):
    tables = tables_of(entries)
    dense, sparse = NgramModel(tables, SYMBOLS, DENSE), NgramModel(tables, SYMBOLS, SPARSE)
    for sentence in sentences:
        expected = ln_parts(entries, [SYMBOLS[symbol] for symbol in sentence])
        for model in (dense, sparse):
            np.testing.assert_allclose(walk(model, sentence)[0], expected, rtol=0, atol=1e-12)
        assert walk(dense, sentence)[1] == walk(sparse, sentence)[1]


@given(entries_of_models(), st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
@settings(max_examples=60, deadline=None)
def test_histories_with_one_state_have_the_same_future(entries, one, other):
    model = NgramModel(tables_of(entries), list(WORDS))
    if walk(model, one)[1][-1] != walk(model, other)[1][-1]:
        return
    for word in WORDS:
        parts = [ln_parts(entries, [*(WORDS[symbol] for symbol in history), word]) for history in (one, other)]
        np.testing.assert_allclose(parts[0][-2:], parts[1][-2:], rtol=0, atol=1e-12)


@given(entries_of_models(), st.permutations(range(len(SYMBOLS))))
@settings(max_examples=25, deadline=None)
def test_the_order_of_the_symbols_changes_no_probability(entries, places):
    tables = tables_of(entries)
    model, other = NgramModel(tables, SYMBOLS), NgramModel(tables, [SYMBOLS[place] for place in places])
    sentence = [3, 5, 1, 0, 3]
    assert walk(model, sentence) == walk(other, [places.index(symbol) for symbol in sentence])


def test_state_holds_only_the_history_words_needed():
    entries = {("a",): (-1.0, 0.0), ("b",): (-1.0, 0.0), ("</s>",): (-1.0, 0.0), ("<s>",): (-99.0, 0.0)}
    flat = NgramModel(tables_of(entries), ["a", "b"])
    assert flat.states == 1 and flat.start == 0
    entries |= {("a", "b"): (-0.5, 0.0), ("b", "a"): (-0.5, -0.25), ("a", "a", "b"): (-0.5, 0.0)}
    model = NgramModel(tables_of(entries), ["a", "b"])
    assert model.states == 5  # nothing, a, b, a a, and b a, which has a back-off weight
    assert walk(model, [0, 1, 0])[1] == [0, 1, 2, 4]


def test_ngrams_with_words_outside_the_symbols_add_no_states():
    entries = {(word,): (-1.0, -0.5) for word in ("a", "b", "<s>", "</s>", "<unk>")}
    entries |= {("a", "b"): (-0.5, -0.5), ("b", "b", "a"): (-0.5, 0.0), ("<unk>", "a"): (-0.25, 0.0)}
    assert NgramModel(tables_of(entries), ["a"]).states < NgramModel(tables_of(entries), ["a", "b"]).states


@pytest.mark.parametrize("name", ["<unk>", "<s>", "</s>"])
def test_a_note_says_which_special_word_is_missing(name):
    entries = {(word,): (-1.0, 0.0) for word in ("a", "<s>", "</s>", "<unk>")}
    assert NgramModel(tables_of(entries), ["a"]).notes == ()
    del entries[name,]
    [note] = NgramModel(tables_of(entries), ["a"]).notes
    assert note.startswith(f"drawn.arpa has no {name}")


def test_batched_advance_equals_advancing_one_by_one(tmp_path: Path):
    draw = np.random.default_rng(3)
    names = [f"w{number}" for number in range(40)]
    entries: Entries = {(name,): (-1.5, -0.5) for name in [*names, "<s>", "</s>", "<unk>"]}
    for order in (2, 3, 4):
        for _ in range(400):
            entries[tuple(draw.choice(names[:12], order).tolist())] = (-draw.random(), -draw.random())
    (tmp_path / "lm.arpa").write_text(arpa_text(entries))
    model = read_ngram_model(tmp_path / "lm.arpa", names)
    sparse = NgramModel(tables_of(entries), names, SPARSE)
    states, symbols = draw.integers(0, model.states, 5000), draw.integers(0, len(names), 5000)
    ln, after = model.advance(states, symbols)
    np.testing.assert_array_equal(after, sparse.advance(states, symbols)[1])
    np.testing.assert_allclose(ln, sparse.advance(states, symbols)[0], rtol=0, atol=1e-12)
    for place in range(0, 5000, 100):
        assert model.advance(states[place : place + 1], symbols[place : place + 1])[0] == ln[place]


def test_back_off_weights_apply_when_the_highest_order_is_empty(tmp_path):
    """A pruned model may have lost all n-grams of its highest order. Its back-off weights stay."""
    head = "\\data\\\nngram 1=3\nngram 2=0\n\n\\1-grams:\n-99\t<s>\t-0.5\n-1\t</s>\n-0.25\ta\t-0.125\n"
    (tmp_path / "lm.arpa").write_text(head + "\n\\2-grams:\n\n\\end\\\n")
    model = read_ngram_model(tmp_path / "lm.arpa", ["a"])
    parts, _ = walk(model, [0, 0])
    np.testing.assert_allclose(parts, np.log(10) * np.array([-0.75, -0.375, -1.125]), atol=1e-12)


@given(entries_of_models(), st.sets(st.integers(0, len(SYMBOLS) - 1), min_size=1))
@settings(max_examples=25, deadline=None)
def test_probability_bound_of_a_state_holds_for_every_symbol(entries, chosen):
    """Only the symbols of the search count, and the bound is one of their probabilities at the empty history."""
    symbols = [SYMBOLS[index] for index in sorted(chosen)]
    for dense in (DENSE, SPARSE):
        model = NgramModel(tables_of(entries), symbols, dense)
        states = np.arange(model.states)
        largest = model.upper_bounds(states)
        for symbol in range(len(symbols)):
            assert (model.advance(states, np.full(model.states, symbol))[0] <= largest + 1e-12).all()
        assert largest[0] == model.unigrams.max()
