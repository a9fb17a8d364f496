"""The words of transcripts with their times, and where several transcripts of one recording differ.

It knows transcripts only: no page and no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from workbench.session.values import Segment
from workbench.text.normalisers import find_normaliser
from workbench.text.rates import edits
from workbench.text.subtitles import atoms_of, tokens_in


@dataclass(frozen=True)
class SpokenWord:
    """A word (or a CJK character with its punctuation) of a segment, in seconds of the recording."""

    start: float
    end: float
    text: str
    timed: bool  # whether the model gave its times; else the text is spread over its segment
    confidence: float | None = None  # 0 to 1: the lowest confidence of its tokens, if known


@dataclass(frozen=True)
class Disagreement:
    """The places where one transcript differs from the others."""

    words: frozenset[int]  # indices of its words that another transcript does not have there
    missing: tuple[tuple[float, str], ...]  # time and text of words that only others have


def spoken_words(segments: Sequence[Segment]) -> list[SpokenWord]:
    """Returns the words of the segments by their start."""
    return sorted((word for segment in segments for word in _words(segment)), key=lambda word: word.start)


def _words(segment: Segment) -> Iterator[SpokenWord]:
    spelt = tokens_in(segment.text, segment.tokens)
    at, place = 0, 0
    for atom in atoms_of(segment):
        end = at + len(atom.text.replace(" ", ""))
        while place < len(spelt) and spelt[place][2] <= at:
            place += 1
        atom_tokens = list(takewhile(lambda spelt_token: spelt_token[1] < end, spelt[place : place + end - at]))  # noqa: B023
        confidences = [token.confidence for token, _, _ in atom_tokens if token.confidence is not None]
        timed = any(token.start is not None for token, _, _ in atom_tokens)
        yield SpokenWord(atom.start, atom.end, atom.text, timed, min(confidences, default=None))
        at = end


def disagreements(transcripts: Sequence[Sequence[SpokenWord]]) -> list[Disagreement]:
    """Returns for each transcript the places where another transcript differs.

    Every two transcripts are aligned by the least number of edits of their words, normalised by "basic".
    """
    normalise = find_normaliser("basic").function
    spelt = [[normalise(word.text) for word in words] for words in transcripts]
    places = [[index for index, text in enumerate(texts) if text] for texts in spelt]  # punctuation alone is not a word
    texts = [[row[index] for index in indices] for row, indices in zip(spelt, places, strict=True)]
    wrong: list[set[int]] = [set() for _ in transcripts]
    missing: list[dict[tuple[float, str], None]] = [{} for _ in transcripts]
    for first in range(len(transcripts)):
        for second in range(first + 1, len(transcripts)):
            for kind, first_place, second_place in edits(texts[first], texts[second]):
                if kind != "insert":
                    wrong[first].add(places[first][first_place])
                if kind != "delete":
                    wrong[second].add(places[second][second_place])
                if kind == "insert":
                    word = transcripts[second][places[second][second_place]]
                    missing[first][round(word.start, 3), word.text] = None
                elif kind == "delete":
                    word = transcripts[first][places[first][first_place]]
                    missing[second][round(word.start, 3), word.text] = None
    return [Disagreement(frozenset(each), tuple(sorted(gaps))) for each, gaps in zip(wrong, missing, strict=True)]
