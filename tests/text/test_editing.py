"""Edits of a transcript's segments before export."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.exported_transcripts import (
    transcript,
)
from workbench.core.errors import BadInput
from workbench.session.values import Segment, Token
from workbench.text.editing import TIME, edited, retold
from workbench.text.exports import FORMATS

SEGMENTS = (
    Segment(
        0.123, 1.456, "three seven", (Token(3, "three", 0.2, 0.6), Token(7, "seven", 0.8, 1.2)), {"emotion": "happy"}
    ),
    Segment(2.0, 3.0, "one", (Token(1, "one", 2.2, 2.8),), {"emotion": "sad"}),
)


def test_unchanged_edit_rows_return_the_same_transcript() -> None:
    before = transcript(*SEGMENTS, text="Three, seven; one.")
    assert edited(before, [["0.12", "1.46", "three seven "], (2.0, 3.0, "one"), ["", None, float("nan")]]) is before


def test_edited_segment_keeps_the_tokens_still_in_its_text() -> None:
    after = edited(transcript(*SEGMENTS), [(0.123, 1.456, "tree seven"), (2.0, 3.0, "one")])
    assert after.text == "tree seven one"
    assert [token.text for token in after.segments[0].tokens] == ["seven"]
    assert after.segments[0].tags == {"emotion": "happy"}
    assert after.segments[1] is SEGMENTS[1]
    assert after.tokens == (3, 1, 2)
    assert after.notes == ("a note", "segments edited by hand")
    assert edited(after, [(0, 1, "x")]).notes == after.notes


def test_edited_rows_are_sorted_and_can_overlap_be_split_or_added() -> None:
    rows = [("0:02.5", "0:00:03,000", "one"), ("0,7", 1.456, "seven"), (0.1, 0.8, "three"), (30, 31, "new")]
    after = edited(transcript(*SEGMENTS), rows)
    assert [(segment.start, segment.end, segment.text) for segment in after.segments] == [
        (0.1, 0.8, "three"),
        (0.7, 1.456, "seven"),
        (2.5, 3.0, "one"),
        (30.0, 31.0, "new"),
    ]
    assert [[token.id for token in segment.tokens] for segment in after.segments] == [[3], [7], [1], []]
    assert [segment.tags.get("emotion") for segment in after.segments] == ["happy", "happy", "sad", None]
    assert edited(transcript(*SEGMENTS), []).text == ""


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1.25", 1.25), ("1,25", 1.25), (".5", 0.5), ("5.", 5.0), ("1:02", 62.0), ("0:01:02,500", 62.5), (" 2 ", 2.0)],
)
def test_edited_times_are_parsed_in_common_notations(written: str, seconds: float) -> None:
    assert edited(transcript(), [(written, 100, "a")]).segments[0].start == seconds


@given(st.one_of(st.text(max_size=30), st.from_regex(TIME, fullmatch=True)))
def test_arbitrary_time_text_is_parsed_or_refused(written: str) -> None:
    rows = [(written, 1e15, "a")]
    if re.fullmatch(TIME, written.strip()):
        (segment,) = edited(transcript(), rows).segments
        assert 0 <= segment.start < 1e13
    else:
        with pytest.raises(BadInput, match="the start of row 1 is"):
            edited(transcript(), rows)


def test_txt_export_of_edited_rows_needs_no_valid_times() -> None:
    before = transcript(*SEGMENTS)
    wrong = [("soon", 1, "three  seven"), (3, 2, "two"), (None, "", ""), (2.0, 3.0, "one")]
    changed = retold(before, wrong)
    assert (changed.text, changed.segments) == ("three seven two one", ())
    assert changed.notes[-1] == "segments edited by hand"
    right = [(2.0, 3.0, "one"), (0.123, 1.456, "three eight")]
    assert retold(before, right) == edited(before, right), "in the order of their times, where these can be read"
    assert [name for name, form in FORMATS.items() if not form.timed] == ["txt"]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=9, unique_by=lambda pair: pair[0]),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_changed_row_has_the_tags_of_the_segment_that_it_overlaps_most(
    places: list[tuple[int, int]], start: int, seconds: int
) -> None:
    before = [Segment(at, at + long, "x", (), {"number": str(at)}) for at, long in sorted(places)]
    [after] = edited(transcript(*before), [(start, start + seconds, "new")]).segments
    overlaps = {each.tags["number"]: min(start + seconds, each.end) - max(start, each.start) for each in before}
    expected = max(overlaps, key=lambda number: overlaps[number], default="")
    assert after.tags == ({"number": expected} if overlaps.get(expected, 0) > 0 else {})


def test_edited_korean_is_joined_with_spaces_as_the_model_wrote_it() -> None:
    segments = (Segment(0, 1, "안녕 하세요"), Segment(1, 2, "감사 합니다"))
    after = edited(transcript(*segments, text="안녕 하세요 감사 합니다"), [(0, 1, "안녕 하세요"), (1, 2, "감사합니다")])
    assert after.text == "안녕 하세요 감사합니다"


def test_edited_chinese_is_joined_without_spaces() -> None:
    assert (
        edited(transcript(), [(0, 1, "今天"), (1, 2, ""), (2, 3, "天气 ok"), (3, 4, "yes")]).text == "今天天气 ok yes"
    )


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (("soon", 1, "a"), "the start of row 2 is 'soon'; expected seconds such as 1.25, or a time such as 0:01.25"),
        ((0, "", "a"), "the end of row 2 is empty; expected seconds"),
        ((0, None, "a"), "the end of row 2 is empty; expected seconds"),
        ((-1, 1, "a"), "the start of row 2 is '-1'; expected seconds"),
        ((0, float("inf"), "a"), "the end of row 2 is 'inf'; expected seconds"),
        ((True, 1, "a"), "the start of row 2 is 'True'; expected seconds"),
        ((2, 1.5, "a"), "row 2 ends at 1.5 s, before it starts at 2 s; expected the end after the start"),
        ((2, 3), "row 2 has 2 cells; expected three: start, end and text"),
    ],
)
def test_errors_name_the_bad_row_and_the_expected_value(row: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        edited(transcript(*SEGMENTS), [(0, 1, "fine"), row])
    assert str(caught.value).startswith(sentence)
