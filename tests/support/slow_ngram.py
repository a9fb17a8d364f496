"""The definition of a back-off model, word by word with a dictionary, and random models that are as odd as allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import strategies as st

Entries = dict[tuple[str, ...], tuple[float, float]]
"""n-gram -> log10 of the probability of its last word, log10 of its back-off weight."""


def log10_of(entries: Entries, word: str, history: tuple[str, ...]) -> float:
    """Returns log10 P(word | history)."""
    if (*history, word) in entries:
        return entries[*history, word][0]
    if not history:
        return -100.0  # only the unknown word of a model that lists none
    return entries.get(history, (0.0, 0.0))[1] + log10_of(entries, word, history[1:])


def ln_parts(entries: Entries, words: Sequence[str]) -> list[float]:
    """Returns ln P of each word of a sentence and of its end."""
    unknown = next((name for name in ("<unk>", "<UNK>") if (name,) in entries), "<unk>")
    known = [word if (word,) in entries else unknown for word in [*words, "</s>"]]
    history = ("<s>",) if ("<s>",) in entries else ()
    longest = max(map(len, entries)) - 1  # a model of order 3 looks back on 2 words
    parts = []
    for word in known:
        history = history[len(history) - min(longest, len(history)) :]
        parts.append(log10_of(entries, word, history) * math.log(10))
        history = (*history, word)
    return parts


def arpa_text(entries: Entries, newline: str = "\n", blank: str = "\t") -> str:
    """Returns the lines of an ARPA file."""
    order = max(map(len, entries))
    by_order = [[each for each in entries if len(each) == n] for n in range(1, order + 1)]
    lines = ["\\data\\", *(f"ngram {n}={len(found)}" for n, found in enumerate(by_order, 1)), ""]
    for n, found in enumerate(by_order, 1):
        lines.append(f"\\{n}-grams:")
        for ngram in found:
            log10, backoff = entries[ngram]
            ending = [repr(backoff)] if backoff else []
            lines.append(blank.join([repr(log10), " ".join(ngram), *ending]))
        lines.append("")
    return newline.join([*lines, "\\end\\", ""])


WORDS = ("a", "b", "c", "dd")
OUTSIDE = "other"

_weight = st.sampled_from([0.0, 0.0, -0.25, -1.5, 0.125, -0.0625])
_log10 = st.sampled_from([-0.125, -0.5, -1.0, -2.75, -99.0, -math.inf, 0.0])


@st.composite
def entries_of_models(draw: st.DrawFn, most_order: int = 9) -> Entries:
    """Draws the n-grams of a model in which prefixes, suffixes and special words may be missing."""
    special = [name for name in ("<s>", "</s>", draw(st.sampled_from(["<unk>", "<UNK>"]))) if draw(st.booleans())]
    words = [*WORDS[: draw(st.integers(1, len(WORDS)))], *special]
    pair = st.tuples(_log10, _weight)
    entries = {(word,): draw(pair) for word in words}
    for ngram in draw(st.lists(st.lists(st.sampled_from(words), min_size=2, max_size=most_order), max_size=30)):
        entries[tuple(ngram)] = draw(pair)
    return entries
