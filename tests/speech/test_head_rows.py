"""Rows of the output matrix against a list of their ids in order."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from tests.support.speech_layouts import layouts
from workbench.speech.head_rows import HeadRows
from workbench.speech.layout import SpeechLayout


@given(layouts())
def test_head_rows_hold_special_ids_first_then_the_streams_in_order(layout: SpeechLayout) -> None:
    found = HeadRows(layout)
    ids = [*range(layout.text_first), *range(layout.codec_first, layout.codec_end)]
    assert found.count == len(ids)
    assert [found.at(number) for number in ids] == list(range(len(ids)))
    assert [found.has(number, number + 1) for number in range(layout.codec_end)] == [
        number in ids for number in range(layout.codec_end)
    ]
    rows = np.array(ids)
    for stream, own in found.biased():
        assert rows[own].tolist() == list(range(*layout.interval(stream)))
    assert [stream for stream, _ in found.biased()] == list(range(1, layout.streams))
    later = found.by_stream(np.stack([rows, -rows])[:, found.later])
    expected = [list(range(*layout.interval(stream))) for stream in range(1, layout.streams)]
    assert later.tolist() == [expected, (-np.array(expected)).tolist()]
