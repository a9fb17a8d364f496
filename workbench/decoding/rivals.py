"""Why a search chose a word: compares the score terms with the best hypothesis that has something else in its place.

It compares finished hypotheses of one n-best list. It knows no search and no language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from workbench.decoding.ctc_beam.hypothesis import Hypothesis

TERMS = {
    "acoustic": "acoustic",
    "token_lm": "token LM",
    "word_lm": "word LM",
    "neural_lm": "neural LM",
    "bonus": "bonus",
    "boost": "boost",
}
"""The fields of a hypothesis that add up to its score, with their display names."""


@dataclass(frozen=True)
class Rival:
    """The best hypothesis with other words in the place of one word of the chosen hypothesis."""

    place: int  # index of the word in the chosen hypothesis
    word: str
    instead: tuple[str, ...]  # what the rival has there; empty if it has nothing
    words: tuple[str, ...]  # of the whole rival
    chosen: Hypothesis
    rival: Hypothesis

    @property
    def lead(self) -> float:
        """The difference of the scores: chosen minus rival."""
        return self.chosen.score - self.rival.score

    @property
    def terms(self) -> dict[str, float]:
        """What each term adds to the lead, by display name; terms that are zero in both hypotheses are left out."""
        pairs = {name: (getattr(self.chosen, field), getattr(self.rival, field)) for field, name in TERMS.items()}
        return {
            name: chosen_value - rival_value
            for name, (chosen_value, rival_value) in pairs.items()
            if chosen_value or rival_value
        }


def find_rival(hypotheses: Sequence[Hypothesis], words: Sequence[Sequence[str]], place: int) -> Rival | None:
    """Returns the best rival of a word of the first hypothesis; None if all other hypotheses have that word there.

    Words are matched as a comparison of texts matches them: a hypothesis has the word there if the longest common
    blocks of both word sequences contain it.

    Args:
        hypotheses: best first.
        words: the words of each hypothesis.
        place: index of the word in the first hypothesis.
    """
    best_words = list(words[0])
    for hypothesis, rival_words in zip(hypotheses[1:], words[1:]):
        for kind, start, end, first, last in SequenceMatcher(
            None, best_words, list(rival_words), autojunk=False
        ).get_opcodes():
            if kind == "equal" or not start <= place < end:
                continue
            rival_part = list(rival_words[first:last])
            if kind == "replace" and last - first == end - start:  # as many words: each stands for its own
                rival_part = [rival_words[first + place - start]]
            if rival_part == [best_words[place]]:
                continue
            return Rival(place, best_words[place], tuple(rival_part), tuple(rival_words), hypotheses[0], hypothesis)
    return None
