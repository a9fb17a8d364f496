"""Which tokens of a hypothesis spell which of its words. This file knows no files and no search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from workbench.decoding.ctc_beam.lexicon import Lexicon


def word_spans(tokens: Sequence[int], words: Sequence[str], lexicon: Lexicon) -> list[tuple[int, int]]:
    """Returns for each word the index of its first token, and the index behind its last.

    If the words can be spelled by these tokens in several ways, the earlier words are as long as possible.

    Raises `ValueError` if the words cannot be spelled by these tokens at all.
    """
    spellings = [lexicon.pronunciations[lexicon.symbols[word]] for word in words]
    all_tokens = tuple(tokens)
    # From the end: the places at which the words from each one on can begin.
    places = [{len(all_tokens)}]
    for each in reversed(spellings):
        lengths = [(len(spelling), spelling) for spelling in each]
        places.append(
            {
                end - n
                for end in places[-1]
                for n, spelling in lengths
                if n <= end and all_tokens[end - n : end] == spelling
            }
        )
    places.reverse()
    if 0 not in places[0]:
        raise ValueError(f"the tokens {list(all_tokens)} do not spell the words {list(words)}")
    starts = [0]
    for each, ends in zip(spellings, places[1:], strict=True):
        start = starts[-1]
        possible_ends = [
            start + len(s) for s in each if start + len(s) in ends and all_tokens[start : start + len(s)] == s
        ]
        starts.append(max(possible_ends))
    return list(pairwise(starts))
