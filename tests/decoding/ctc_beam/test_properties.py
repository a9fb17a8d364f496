"""Properties that hold for every CTC beam search, with a wide or narrow beam."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.ctc_oracle import TableModel, boosted
from tests.support.ctc_problems import Problem, random_problem
from workbench.decoding.ctc_beam import CtcDecoder, Hypothesis, Lexicon, Phrases, SearchOptions
from workbench.decoding.ctc_beam import rows as rows_module
from workbench.decoding.ctc_beam.phrases import PhraseCounter

SEEDS = st.integers(0, 10_000)
BEAMS = st.integers(1, 12)


def narrow_problem(seed: int, beam_size: int, frames: int = 0) -> Problem:
    """A problem with a beam that cannot hold everything, and longer recordings if `frames` is more than 0."""
    problem = random_problem(seed)
    options = replace(problem.options, beam_size=beam_size, nbest=min(problem.options.nbest, 3))
    rng = np.random.default_rng(seed + 1)
    lengths = rng.integers(1, frames + 1, size=3) if frames else ()
    batch = [rng.normal(scale=3.0, size=(length, problem.vocabulary)) for length in lengths] or problem.batch
    return replace(problem, options=options, batch=batch)


def fresh(problem: Problem) -> list[list[Hypothesis]]:
    return problem.decoder().decode(problem.batch)


@settings(max_examples=25, deadline=None)
@given(SEEDS, BEAMS)
@example(2354, 1)  # the full beam has a hypothesis with an unfinished word
def test_decoding_in_any_batch_equals_decoding_alone(seed: int, beam_size: int) -> None:
    """Bit for bit: the order of the batch, its other members and their lengths change nothing."""
    problem = narrow_problem(seed, beam_size, frames=20)
    decoder = problem.decoder()
    batched = decoder.decode(problem.batch)
    backwards = decoder.decode(problem.batch[::-1])
    assert backwards[::-1] == batched
    assert [decoder.decode([logits])[0] for logits in problem.batch] == batched


@pytest.mark.parametrize("seed", range(6))
def test_decoding_with_a_large_vocabulary_is_independent_of_the_batch(seed: int) -> None:
    """If there are more pairs of hypothesis and token than the search considers, each utterance has its own choice."""
    rng = np.random.default_rng(seed)
    vocabulary = 300
    lexicon = Lexicon(tuple("abc"), tuple((tuple(rng.integers(1, vocabulary, size=2).tolist()),) for _ in range(3)))
    batch = [rng.normal(scale=rng.choice([0.1, 1.0, 4.0]), size=(rng.integers(2, 15), vocabulary)) for _ in range(4)]
    options = SearchOptions(beam_size=int(rng.integers(2, 9)), nbest=8, alpha=3.0)
    model = TableModel(vocabulary, rng, order=2)
    decoder = CtcDecoder(vocabulary, 0, options, token_lm=model, lexicon=lexicon if seed > 3 else None)
    batched = decoder.decode(batch)
    assert batched == [decoder.decode([logits])[0] for logits in batch]
    state = decoder.begin()
    decoder.advance(state, batch[0])
    assert list(decoder.explain(batch[0]).hypotheses) == decoder.finish(state)


@settings(max_examples=30, deadline=None)
@given(SEEDS, BEAMS, st.data())
def test_decoding_in_chunks_equals_decoding_the_whole_recording(seed: int, beam_size: int, data: st.DataObject) -> None:
    """Also if the search drops prefixes on the way, and if the result is requested in between."""
    problem = narrow_problem(seed, beam_size, frames=25)
    decoder = problem.decoder()
    logits = problem.batch[0]
    at_once, chunked = decoder.begin(), decoder.begin()
    decoder.advance(at_once, logits)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(logits)), max_size=5)))
    limit, rows_module.TREE_LIMIT = rows_module.TREE_LIMIT, 1
    try:
        chunked.rows._limit = 1
        for start, end in zip([0, *cuts], [*cuts, len(logits)]):
            decoder.advance(chunked, logits[start:end])
            decoder.finish(chunked)
    finally:
        rows_module.TREE_LIMIT = limit
    assert decoder.finish(chunked) == decoder.finish(at_once)
    assert chunked.rows.prefixes.size <= max(64, at_once.rows.prefixes.size)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_the_vocabulary_does_not_matter(seed: int, random: st.DataObject) -> None:
    problem = random_problem(seed)
    order = list(range(problem.vocabulary))
    random.shuffle(order)
    place = {token: index for index, token in enumerate(order)}
    parts = {"lexicon": None, "phrases": None}
    lexicon, phrases = problem.parts["lexicon"], problem.parts["phrases"]
    if lexicon is not None:
        spelled = tuple(tuple(tuple(place[t] for t in each) for each in word) for word in lexicon.pronunciations)
        parts["lexicon"] = Lexicon(lexicon.words, spelled)
    if phrases is not None:
        parts["phrases"] = phrases
        if lexicon is None:
            parts["phrases"] = Phrases(tuple(tuple(place[token] for token in each) for each in phrases.sequences))
    plain = CtcDecoder(problem.vocabulary, problem.blank, problem.options, lexicon=lexicon, phrases=phrases).decode(
        problem.batch
    )
    moved = CtcDecoder(problem.vocabulary, place[problem.blank], problem.options, **parts).decode(
        [logits[:, order] for logits in problem.batch]
    )
    for before, after in zip(plain, moved, strict=True):
        scores = {(each.tokens, each.words): each.score for each in before}
        renamed = {(tuple(order[token] for token in each.tokens), each.words): each.score for each in after}
        np.testing.assert_allclose(sorted(renamed.values()), sorted(scores.values()), rtol=0, atol=1e-9)
        for key in renamed.keys() & scores.keys():
            assert renamed[key] == pytest.approx(scores[key], abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(SEEDS, BEAMS)
def test_score_terms_equal_those_of_the_complete_texts(seed: int, beam_size: int) -> None:
    """Look-ahead and the credit for unfinished phrases do not change the terms, however narrow the beam."""
    problem = narrow_problem(seed, beam_size, frames=20)
    options, parts = problem.options, problem.parts
    for hypotheses in fresh(problem):
        assert len({(each.tokens, each.words) for each in hypotheses}) == len(hypotheses)
        for each in hypotheses:
            words = None
            if parts["lexicon"] is not None:
                words = [parts["lexicon"].words.index(word) for word in each.words]
            expected = options.beta * len(each.tokens) + (0.0 if words is None else options.word_bonus * len(words))
            assert each.bonus == pytest.approx(expected, abs=1e-9)
            for name, weight, symbols in (
                ("token_lm", options.alpha, each.tokens),
                ("word_lm", options.gamma, words),
                ("neural_lm", options.gamma, words),
            ):
                model = parts[name]
                value = 0.0 if model is None else weight * model.text(symbols)
                assert getattr(each, name) == pytest.approx(value, abs=1e-9)
            boost = 0.0
            if parts["phrases"] is not None:
                boost = options.boost_score * boosted(each.tokens if words is None else words, parts["phrases"])
            assert each.boost == pytest.approx(boost, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_look_ahead_changes_no_exact_result(seed: int) -> None:
    problem = random_problem(seed)
    model = problem.parts["word_lm"]
    if model is None:
        return
    ahead = fresh(problem)
    del model.unigrams
    assert fresh(problem) == ahead


@settings(max_examples=40, deadline=None)
@given(SEEDS, BEAMS)
def test_pruning_never_raises_the_score_of_a_hypothesis(seed: int, beam_size: int) -> None:
    """A threshold and few tokens per frame lower a hypothesis's probability, and never raise it."""
    problem = random_problem(seed)
    exact = [
        {(h.tokens, h.words): h.score for h in hypotheses}
        for hypotheses in fresh(replace(problem, options=replace(problem.options, nbest=5000)))
    ]
    options = replace(problem.options, beam_size=beam_size, tokens_per_frame=1, threshold=4.0, nbest=1)
    for exact_scores, hypotheses in zip(exact, fresh(replace(problem, options=options)), strict=True):
        for each in hypotheses:
            assert each.score <= exact_scores[each.tokens, each.words] + 1e-9


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=5),
    st.lists(st.integers(0, 2), max_size=12),
)
def test_phrases_are_counted_leftmost_and_longest(sequences: list[list[int]], text: list[int]) -> None:
    phrases = Phrases(tuple(map(tuple, sequences)))
    counter = PhraseCounter(phrases, 3)
    states, earned = np.array([0]), 0
    for symbol in text:
        states, newly_earned = counter.advance(states, np.array([symbol]))
        earned += int(newly_earned[0])
    state = int(states[0])
    assert earned + counter.at_end[state] == boosted(text, phrases)
    pending = [boosted(text[:length], phrases) for length in range(len(text) + 1)]
    assert all(earlier <= later for earlier, later in pairwise(pending))
    assert counter.depth[state] >= counter.at_end[state]


def test_following_word_decides_between_homophones() -> None:
    """Two words sound alike; the search keeps the one that the next word needs."""

    class Pairs:
        """Knows which word follows which: 0 is likelier first, but 2 follows only 1."""

        start = 0

        def advance(self, states: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            chances = {(0, 0): 0.8, (0, 1): 0.2, (1, 2): 0.01, (2, 2): 0.9}
            pairs = zip(states.tolist(), symbols.tolist())
            return np.log([chances.get(pair, 1e-3) for pair in pairs]), symbols + 1

        def final(self, states: np.ndarray) -> np.ndarray:
            return np.zeros(len(states))

    lexicon = Lexicon(("two", "too", "late"), (((1,),), ((1,),), ((2, 3),)))
    decoder = CtcDecoder(4, 0, SearchOptions(beam_size=4, gamma=1.0, nbest=2), lexicon=lexicon, word_lm=Pairs())
    sure = np.full((4, 4), -9.0)
    sure[[0, 1, 2, 3], [1, 0, 2, 3]] = 0.0
    state = decoder.begin()
    decoder.advance(state, sure[:2])
    assert [each.words for each in decoder.finish(state)] == [("two",), ("too",)]
    decoder.advance(state, sure[2:])
    assert [each.words for each in decoder.finish(state)] == [("too", "late"), ("two", "late")]


def test_complete_hypothesis_survives_a_beam_of_one() -> None:
    """A beam of one follows an unfinished word to the end, and retains the empty hypothesis."""
    logits = np.log([[0.1, 0.9, 0.0 + 1e-9], [0.1, 0.9, 1e-9]])
    lexicon = Lexicon(("long",), (((1, 2),),))
    decoder = CtcDecoder(3, 0, SearchOptions(beam_size=1), lexicon=lexicon)
    state = decoder.begin()
    decoder.advance(state, logits)
    (hypothesis,) = decoder.finish(state)
    assert hypothesis.tokens == () and hypothesis.acoustic == pytest.approx(np.log(0.01), abs=1e-6)


def test_search_with_too_few_complete_hypotheses_is_repeated_with_a_wider_beam() -> None:
    rng = np.random.default_rng(0)
    lexicon = Lexicon(
        tuple("abcdef"), tuple(((1 + index, 1 + (index + 1) % 6, 1 + (index + 3) % 6),) for index in range(6))
    )
    logits = rng.normal(size=(6, 7))
    hypotheses = CtcDecoder(7, 0, SearchOptions(beam_size=5, nbest=5), lexicon=lexicon).decode([logits])[0]
    assert len({each.tokens for each in hypotheses}) == 5


def test_default_weights_of_the_score() -> None:
    rng = np.random.default_rng(0)
    token_lm, word_lm = TableModel(3, rng), TableModel(2, rng)
    lexicon, phrases = Lexicon(("a", "b"), (((1,),), ((2,),))), Phrases(((1,),))
    decoder = CtcDecoder(
        3, 0, SearchOptions(nbest=9), token_lm=token_lm, word_lm=word_lm, lexicon=lexicon, phrases=phrases
    )
    [found] = decoder.decode([rng.normal(size=(3, 3))])
    assert any(1 in each.tokens for each in found)
    for each in found:
        words = [token - 1 for token in each.tokens]
        assert each.token_lm == pytest.approx(0.5 * token_lm.text(each.tokens))
        assert each.word_lm == pytest.approx(0.5 * word_lm.text(words))
        assert each.bonus == 0.0 and each.boost == 2.0 * words.count(1)


def test_language_model_with_zero_weight_is_not_called() -> None:
    model = TableModel(3, np.random.default_rng(0))
    CtcDecoder(3, 0, SearchOptions(alpha=0.0), token_lm=model).decode([np.zeros((4, 3))])
    assert model.asked == 0
