"""Threads that share a search, as those of a page or of a user's program do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from workbench.decoding.ctc_beam import CtcDecoder, Lexicon, SearchOptions
from workbench.decoding.neural import NeuralModel
from workbench.session.values import TextScore


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Lets threads take turns a thousand times as often as usual."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 1000)
    yield
    sys.setswitchinterval(interval)


def scores_of(texts: Sequence[str], *, end: bool = True) -> list[TextScore]:
    """A language model that likes the word a best."""
    logprobs = [np.array([-0.01 * ord(letter) for letter in text.replace(" ", "")]) for text in texts]
    return [TextScore(np.arange(len(each)), each, -1.0 if end else None) for each in logprobs]


def search_of_ambiguous_words() -> CtcDecoder:
    """A search in which the same tokens are many sequences of words."""
    rng = np.random.default_rng(0)
    spellings = [tuple(rng.integers(1, 3, size=rng.integers(1, 5)).tolist()) for _ in range(12)]
    lexicon = Lexicon(tuple("abc"), (tuple(spellings[:4]), tuple(spellings[4:8]), tuple(spellings[8:])))
    neural_lm = NeuralModel(scores_of, lexicon.words)
    return CtcDecoder(3, 0, SearchOptions(beam_size=32, nbest=3), lexicon=lexicon, neural_lm=neural_lm)


@pytest.mark.usefixtures("hurried_threads")
def test_threads_that_share_a_search_get_the_results_of_one_thread() -> None:
    rng = np.random.default_rng(1)
    recordings = [rng.normal(scale=1.5, size=(20, 3)) for _ in range(12)]
    expected = [search_of_ambiguous_words().decode([logits]) for logits in recordings]
    for _ in range(5):
        shared = search_of_ambiguous_words()
        with ThreadPoolExecutor(6) as threads:
            assert list(threads.map(lambda logits, search=shared: search.decode([logits]), recordings)) == expected
