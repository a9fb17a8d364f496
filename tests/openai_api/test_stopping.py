"""Stop texts: streamed text ends before the first stop text, however it is split into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.openai_api.errors import Refusal
from workbench.openai_api.stopping import Stopping, read_stops

WORDS = st.text("ab", max_size=6)


@given(st.lists(WORDS, max_size=8), st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3))
def test_streamed_text_ends_before_the_first_stop_text_for_any_split(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    places = [text.find(stop) for stop in stops if stop in text]
    stopping = Stopping(stops)
    outputs = []
    for piece in pieces:
        outputs.append(stopping.feed(piece))
        assert not any(stop in "".join(outputs) for stop in stops)
        if stopping.ended:
            break
    outputs.append(stopping.feed("", last=True))
    # A stop text that begins later may be complete earlier; then the text ends there.
    assert "".join(outputs) == stopping.text
    assert stopping.ended == bool(places)
    assert text.startswith(stopping.text) and (places or stopping.text == text)
    if len({*stops}) == 1:
        assert stopping.text == (text[: places[0]] if places else text)


def test_stop_field_accepts_a_text_or_a_list_and_refuses_other_types() -> None:
    assert (
        read_stops("x") == ("x",) and read_stops(["x", "y"]) == ("x", "y") and read_stops("") == read_stops(None) == ()
    )
    for invalid in (3, [3], [""], ["x"] * 99, {"a": 1}):
        with pytest.raises(Refusal, match="stop"):
            read_stops(invalid)
