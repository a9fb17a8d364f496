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
    whole = "".join(pieces)
    places = [whole.find(stop) for stop in stops if stop in whole]
    stopping = Stopping(stops)
    shown = []
    for piece in pieces:
        shown.append(stopping.feed(piece))
        assert not any(stop in "".join(shown) for stop in stops)
        if stopping.ended:
            break
    shown.append(stopping.feed("", last=True))
    # A stop that begins later may be whole earlier, and then the text ends there.
    assert "".join(shown) == stopping.text
    assert stopping.ended == bool(places)
    assert whole.startswith(stopping.text) and (places or stopping.text == whole)
    if len({*stops}) == 1:
        assert stopping.text == (whole[: places[0]] if places else whole)


def test_stop_field_accepts_a_text_or_a_list_and_refuses_other_types() -> None:
    assert (
        read_stops("x") == ("x",) and read_stops(["x", "y"]) == ("x", "y") and read_stops("") == read_stops(None) == ()
    )
    for bad in (3, [3], [""], ["x"] * 99, {"a": 1}):
        with pytest.raises(Refusal, match="stop"):
            read_stops(bad)
