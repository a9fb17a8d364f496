"""The delay pattern against its definition, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT, layouts
from workbench.core.errors import BadInput
from workbench.speech.delay import aligned, check_rows, delayed
from workbench.speech.layout import SpeechLayout


def slow_rows(codes: np.ndarray, layout: SpeechLayout) -> list[list[int]]:
    """Returns the rows by the definition: row r of stream s holds the code of frame r - s, or the stream's pad."""
    rows = []
    for row in range(len(codes) + layout.streams - 1 if len(codes) else 0):
        ids = []
        for stream in range(layout.streams):
            frame, pad = row - stream, layout.codec_first + stream * layout.layer_size
            ids.append(pad + 1 + int(codes[frame, stream]) if 0 <= frame < len(codes) else pad)
        rows.append(ids)
    return rows


@st.composite
def coded(draw: st.DrawFn) -> tuple[SpeechLayout, np.ndarray]:
    layout = draw(layouts())
    frames = draw(st.integers(0, 12))
    numbers = st.integers(0, layout.codes - 1)
    codes = draw(st.lists(numbers, min_size=frames * layout.streams, max_size=frames * layout.streams))
    return layout, np.array(codes, dtype=np.int64).reshape(frames, layout.streams)


@given(coded())
def test_delayed_rows_match_the_definition_and_align_back_to_the_codes(each: tuple[SpeechLayout, np.ndarray]) -> None:
    layout, codes = each
    rows = delayed(codes, layout)
    assert rows.tolist() == slow_rows(codes, layout)
    assert np.array_equal(aligned(rows, layout), codes)
    check_rows(rows, layout, "the rows")
    for stream in range(layout.streams):
        first, end = layout.interval(stream)
        assert ((first <= rows[:, stream]) & (rows[:, stream] < end)).all()


@given(coded(), st.data())
def test_truncated_delayed_rows_keep_their_complete_frames(
    each: tuple[SpeechLayout, np.ndarray], data: st.DataObject
) -> None:
    layout, codes = each
    rows = delayed(codes, layout)
    cut = data.draw(st.integers(0, len(rows)))
    complete = max(cut - layout.streams + 1, 0)
    assert np.array_equal(aligned(rows[:cut], layout), codes[:complete])


@given(coded(), st.data())
def test_delay_corners_are_ignored_and_other_pads_become_code_0(
    each: tuple[SpeechLayout, np.ndarray], data: st.DataObject
) -> None:
    layout, codes = each
    rows = delayed(codes, layout)
    for row in range(len(rows)):
        for stream in range(layout.streams):
            if not 0 <= row - stream < len(codes):
                rows[row, stream] = data.draw(st.integers(*layout.interval(stream)).filter(lambda n: n > 0))
    assert np.array_equal(aligned(rows, layout), codes)
    if len(codes):
        frame, stream = data.draw(st.integers(0, len(codes) - 1)), data.draw(st.integers(0, layout.streams - 1))
        rows[frame + stream, stream] = layout.pads[stream]
        codes[frame, stream] = 0
        assert np.array_equal(aligned(rows, layout), codes)


def test_delayed_rows_of_a_three_stream_example() -> None:
    layout = SpeechLayout(133, 20, 100, 100, 3, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8)
    codes = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 0, 1]])
    assert delayed(codes, layout).tolist() == [
        [101, 111, 122],
        [104, 113, 122],
        [107, 116, 125],
        [110, 119, 128],
        [100, 112, 131],
        [100, 111, 124],
    ]


@pytest.mark.parametrize("codes", [np.zeros((2, 4), int), np.zeros(5, int), np.full((2, 5), 5), np.full((2, 5), -1)])
def test_codes_of_wrong_shape_or_range_are_refused(codes: np.ndarray) -> None:
    with pytest.raises(BadInput, match="expected"):
        delayed(codes, LAYOUT)


def test_rows_of_wrong_shape_or_range_are_refused() -> None:
    with pytest.raises(BadInput, match=r"the streams have the shape \(3, 4\); expected rows of 5 streams"):
        check_rows(np.zeros((3, 4), int), LAYOUT, "the streams")
    rows = delayed(np.zeros((3, 5), int), LAYOUT)
    for inside in (36, 41):
        rows[2, 1] = inside
        check_rows(rows, LAYOUT, "the streams")
    for outside in (35, 42):
        rows[2, 1] = outside
        with pytest.raises(BadInput, match=f"the streams have the id {outside} in row 3, stream 1; expected 36 to 41"):
            check_rows(rows, LAYOUT, "the streams")
