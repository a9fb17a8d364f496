"""The best hypothesis with a different word at one position, and the score terms of the two."""

from __future__ import annotations

import pytest

from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.rivals import find_rival

TEXTS = ["call five one two", "call nine one two", "call five one too", "five one two", "call five one two now"]
HYPOTHESES = [
    Hypothesis((1, 2), None, -10.0, token_lm=-2.0, bonus=1.0),
    Hypothesis((1, 3), None, -9.0, token_lm=-4.0, bonus=1.0),
    Hypothesis((1, 4), None, -12.0, token_lm=-3.0, bonus=1.0),
    Hypothesis((2,), None, -15.0, token_lm=-3.0, bonus=0.5),
    Hypothesis((2, 9), None, -16.0, token_lm=-3.0, bonus=0.5),
]
WORDS = [text.split() for text in TEXTS]


@pytest.mark.parametrize(("place", "rank", "instead"), [(0, 3, ()), (1, 1, ("nine",)), (2, None, ()), (3, 2, ("too",))])
def test_rival_is_the_best_hypothesis_with_another_word_at_the_position(
    place: int, rank: int | None, instead: tuple[str, ...]
) -> None:
    rival = find_rival(HYPOTHESES, WORDS, place)
    if rank is None:
        assert rival is None
        return
    assert rival is not None and rival.rival is HYPOTHESES[rank] and rival.instead == instead
    assert rival.word == WORDS[0][place] and rival.words == tuple(WORDS[rank])
    assert sum(rival.terms.values()) == pytest.approx(rival.lead)


def test_rival_terms_show_which_score_term_decided() -> None:
    rival = find_rival(HYPOTHESES, WORDS, 1)
    assert rival is not None and rival.lead == pytest.approx(1.0)
    assert rival.terms == {"acoustic": -1.0, "token LM": 2.0, "bonus": 0.0}
