"""Rows of the output matrix against a list of their ids in order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import layouts
from workbench.speech.head_rows import HeadRows
from workbench.speech.layout import SpeechLayout


@given(layouts())
def test_head_rows_hold_special_ids_first_then_the_streams_in_order(layout: SpeechLayout) -> None:
    head_rows = HeadRows(layout)
    ids = [*range(layout.text_first), *range(layout.codec_first, layout.codec_end)]
    assert head_rows.count == len(ids)
    assert [head_rows.at(number) for number in ids] == list(range(len(ids)))
    assert [head_rows.has(number, number + 1) for number in range(layout.codec_end)] == [
        number in ids for number in range(layout.codec_end)
    ]
    rows = np.array(ids)
    for stream, own in head_rows.biased():
        assert rows[own].tolist() == list(range(*layout.interval(stream)))
    assert [stream for stream, _ in head_rows.biased()] == list(range(1, layout.streams))
    later = head_rows.by_stream(np.stack([rows, -rows])[:, head_rows.later])
    expected = [list(range(*layout.interval(stream))) for stream in range(1, layout.streams)]
    assert later.tolist() == [expected, (-np.array(expected)).tolist()]


@given(layouts(), st.data())
def test_parts_of_an_interval_have_rows_for_all_ids_or_none(layout: SpeechLayout, data: st.DataObject) -> None:
    head_rows = HeadRows(layout)
    first, end = sorted(data.draw(st.integers(0, layout.vocabulary)) for _ in range(2))
    parts = list(head_rows.parts(first, end))
    assert [number for part in parts for number in range(*part)] == list(range(first, end))
    for part in parts:
        assert {head_rows.has(number, number + 1) for number in range(*part)} == {head_rows.has(*part)}
