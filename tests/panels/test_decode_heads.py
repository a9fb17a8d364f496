"""Vocabulary checks of the Decode tab: word marks, separated tokens, and few reads of a large vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from panels.decode import heads
from panels.decode.heads import has_separate_tokens, marks_words
from panels.decode.record_view import Followed, search_value
from workbench.decoding.ctc_beam import CtcDecoder, SearchOptions


class Counted(str):
    """A token that counts how often its beginning is read."""

    looks = 0

    def startswith(self, *prefix: object) -> bool:
        Counted.looks += 1
        return super().startswith(*prefix)  # type: ignore[arg-type]


def pieces(mark: str) -> Iterator[str]:
    yield "<blk>"
    for number in range(999):
        yield Counted(f"{mark}t{number}")


def test_tokens_are_separated_unless_words_are_marked_or_most_are_letters() -> None:
    assert has_separate_tokens(["<blk>", "T", "UW", "AH"]) and not has_separate_tokens(["<blk>", "a", "b", "c"])
    assert not has_separate_tokens(["<blk>", "▁to", "day"]) and marks_words(["<blk>", "▁to", "day"])
    assert not has_separate_tokens(["to", "##day", "<blk>"]) and has_separate_tokens(["<blk>", "T", "UW", "##"])
    assert not has_separate_tokens(["<blk>", "TO", "|"]) and not marks_words(["<blk>", "TO", "|"])


def test_followed_search_reads_the_vocabulary_at_most_twice() -> None:
    heads._has_separate_tokens.cache_clear()
    heads._marks_words.cache_clear()
    Counted.looks = 0
    vocabulary = tuple(pieces(""))
    logits = np.random.default_rng(0).normal(size=(40, len(vocabulary)))
    record = CtcDecoder(len(vocabulary), 0, SearchOptions(beam_size=4)).explain(logits)
    value = search_value(Followed(record, vocabulary, 0, None, 0.0, None), "")
    assert len(value["frames"]) == 40 and len(value["prefixes"]) > 40
    assert 0 < Counted.looks <= 2 * len(vocabulary)
