"""Trains an n-gram model on a text: sentences of words, or of a speech model's tokens."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.core.errors import BadInput
from workbench.decoding.ngram.counts import count_ngrams
from workbench.decoding.ngram.kneser_ney import FALLBACK, estimate
from workbench.decoding.ngram.tables import END, MAX_TRAINED_ORDER, START, UNKNOWNS, NgramTables

UNKNOWN_ID, START_ID, END_ID = range(3)


@dataclass(frozen=True)
class TrainingResult:
    """A model, what it was trained on, and sentences for the user about what is not as expected."""

    tables: NgramTables
    sentences: int
    tokens: int
    unknown: int  # tokens that are not in the vocabulary
    notes: tuple[str, ...]


def train(
    sentences: Iterable[Sequence[str]], order: int, vocabulary: Sequence[str] | None = None, source: str = "the text"
) -> TrainingResult:
    """Returns the model of sentences, by modified Kneser-Ney smoothing. Empty sentences are left out.

    Args:
        sentences: the words of each.
        order: the highest order; the model's is lower if all sentences are shorter.
        vocabulary: all words of the model; others become `<unk>`. None: the words of the sentences.
        source: the text's name, for messages.

    Raises `BadInput` for a text without words, for one that contains `<s>` or `</s>`, and for words with white space.
    """
    if not 1 <= order <= MAX_TRAINED_ORDER:
        raise BadInput(f"the order is {order}; expected 1 to {MAX_TRAINED_ORDER}")
    ids: defaultdict[str, int] = defaultdict()
    ids |= {UNKNOWNS[0]: UNKNOWN_ID, START: START_ID, END: END_ID, UNKNOWNS[1]: UNKNOWN_ID}
    ids.default_factory = lambda: len(ids) - 1  # one word has two names
    for word in vocabulary or ():
        ids[word]
    vocabulary_words = list(ids)
    if vocabulary is not None:
        ids.default_factory = lambda: UNKNOWN_ID
    text, count = _numbered(sentences, ids, source)
    if not count:
        raise BadInput(f"{source} has no words; expected sentences, one a line")
    words = [word for word in (ids if vocabulary is None else vocabulary_words) if word != UNKNOWNS[1]]
    if (split_word := next((word for word in words if len(word.encode().split()) != 1), None)) is not None:
        raise BadInput(
            f"{source} has the word {split_word!r:.40}; expected words without white space, as in ARPA files"
        )
    counts = count_ngrams(text, END_ID, len(words), order)
    model = estimate(counts, len(words), START_ID)
    notes = []
    if len(counts) < order:
        notes.append(f"the model has order {len(counts)}: {source} has no longer sentence")
    if model.guessed:
        orders = ", ".join(map(str, model.guessed))
        notes.append(
            f"the counts of order {orders} in {source} are too few or too regular to estimate discounts; it uses "
            f"{', '.join(f'{discount:g}' for discount in FALLBACK)}"
        )
    tables = NgramTables(tuple(words), model.orders, source)
    unknown = int((text == UNKNOWN_ID).sum())
    return TrainingResult(tables, count, len(text) - 2 * count, unknown, tuple(notes))


def _numbered(sentences: Iterable[Sequence[str]], ids: Mapping[str, int], source: str) -> tuple[np.ndarray, int]:
    """Returns the words' numbers int64 [tokens], with `<s>` and `</s>` around each sentence, and the number of
    sentences.
    """
    text = array("q")
    count = 0
    for number, sentence in enumerate(sentences, 1):
        if START in sentence or END in sentence:
            raise BadInput(f"sentence {number} of {source} contains {START} or {END}; expected words and tokens only")
        if sentence:
            text.append(START_ID)
            text.extend(map(ids.__getitem__, sentence))
            text.append(END_ID)
            count += 1
    return np.frombuffer(text, np.int64) if count else np.empty(0, np.int64), count
