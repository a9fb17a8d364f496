"""The timeline of words as SVG: each word is placed at its time, and its label fits into its box."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.html_fragments import HOSTILE, checked
from workbench.display.timeline import MAX_MARKS, WIDEST, timeline

MARKS = st.lists(st.tuples(st.floats(0, 500), st.floats(0, 2), st.text(max_size=20)), min_size=1, max_size=12)


@given(MARKS)
def test_marks_are_drawn_at_their_start_times(drawn: list[tuple[float, float, str]]) -> None:
    marks = [(start, start + length, text) for start, length, text in sorted(drawn)]
    tree = checked(timeline(marks, 502.5))
    [svg] = tree.iter("{http://www.w3.org/2000/svg}svg")
    width = float(svg.attrib["width"])
    rects = list(tree.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(rects) == len(marks) and width <= WIDEST + 400
    places = np.array([float(rect.attrib["x"]) for rect in rects])
    scale = (width - 400) / 502.5, width / 502.5  # pixels of a second, but for the room of the last word
    starts = np.array([start for start, _, _ in marks])
    assert (places >= starts * scale[0] - 1).all() and (places <= starts * scale[1] + 1).all()


def test_timeline_is_empty_without_words_or_duration() -> None:
    assert timeline([], 3.0) == "" and timeline([(0, 1, "a")], 0.0) == ""


def test_number_of_marks_is_limited_and_hostile_text_is_escaped() -> None:
    found = timeline([(n / 10, n / 10 + 0.1, HOSTILE) for n in range(MAX_MARKS + 50)], 60.0)
    assert found.count("<rect") == MAX_MARKS
    checked(found)


def test_usual_words_fit_into_their_time() -> None:
    found = timeline([(0.0, 0.4, "three"), (0.5, 0.9, "seven"), (1.0, 1.4, "one")], 1.88)
    assert all(f">{word}</text>" in found for word in ("three", "seven", "one"))
