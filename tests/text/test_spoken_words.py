"""Words with times from transcripts, and disagreements between transcripts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from workbench.session.values import Segment, Token, Transcript
from workbench.text.spoken_words import SpokenWord, disagreements, spoken_words

TEXTS = st.lists(st.lists(st.sampled_from(("one", "two", "three", "One,", "…")), max_size=8), min_size=1, max_size=4)


def words(texts: list[str]) -> list[SpokenWord]:
    return [SpokenWord(float(n), n + 0.5, text, True) for n, text in enumerate(texts)]


def test_words_have_times_and_lowest_confidence_of_their_tokens() -> None:
    tokens = (
        Token(1, " three", 0.1, 0.3, 0.9),
        Token(2, " ele", 0.5, 0.6, 0.4),
        Token(3, "ven", 0.6, 0.8, 0.8),
        Token(4, " one", 1.0, 1.2),
    )
    timed_words = spoken_words([Segment(3.0, 4.0, "no times"), Segment(0.0, 2.0, "three eleven, one", tokens)])
    assert [(each.text, each.start, each.end, each.timed, each.confidence) for each in timed_words[:3]] == [
        ("three", 0.1, 0.3, True, 0.9),
        ("eleven,", 0.5, 0.8, True, 0.4),
        ("one", 1.0, 1.2, True, None),
    ]
    assert [(each.text, each.timed) for each in timed_words[3:]] == [("no", False), ("times", False)]
    assert timed_words[3].start == 3.0 and timed_words[-1].end == 4.0
    assert [each.text for each in spoken_words([Segment(0.0, 1.0, "三七 one")])] == ["三", "七", "one"]


def test_disagreements_mark_wrong_words_and_positions_of_missing_words() -> None:
    first, second = words(["three", "eleven", "one"]), words(["Three", "seven", "four", "one"])
    marks = disagreements([first, second])
    assert marks[0].words == {1} and [text for _, text in marks[0].missing] in (["seven"], ["four"])
    assert marks[1].words == {1, 2} and marks[1].missing == ()
    marks_alone = disagreements([first])
    assert marks_alone[0].words == frozenset() and marks_alone[0].missing == ()


@given(TEXTS)
def test_equal_transcripts_agree_and_differences_appear_in_both(texts: list[list[str]]) -> None:
    assert all(not each.words and not each.missing for each in disagreements([words(texts[0])] * 3))
    marks = disagreements([words(each) for each in texts])
    assert len(marks) == len(texts)
    for mark, transcript in zip(marks, texts, strict=True):
        assert all(transcript[index] != "…" for index in mark.words), "a sign alone is no word"
    for one, other in pairwise(marks):
        assert bool(marks[0].words or marks[0].missing) or len(marks) > 2 or not (one.words or other.missing)


def test_token_confidence_is_exported_only_if_known() -> None:
    tokens = (Token(1, " a", 0.0, 0.1, 0.123456), Token(2, " b", 0.1, 0.2))
    document = Transcript("m", "r", "a b", None, (Segment(0, 1, "a b", tokens),), (1, 2), 1.0, 0.0, 0.0).to_dict()
    assert document["segments"][0]["tokens"] == (
        {"id": 1, "text": " a", "start": 0.0, "end": 0.1, "confidence": 0.123},
        {"id": 2, "text": " b", "start": 0.1, "end": 0.2},
    )
    assert Token(1, "a", confidence=0.5) == Token(1, "a"), "it does not make two transcripts different"
