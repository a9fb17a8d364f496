"""What the server keeps for open pages: one visitor cannot drive out the values of the others."""

from __future__ import annotations

import gradio as gr
import pytest

from panels.running.last_results import LastResults
from panels.running.shares import first_to_forget
from panels.running.visitor_states import VisitorStates
from workbench.core.errors import BadInput
from workbench.core.visitors import Visitor, visited_by


@pytest.mark.parametrize(
    ("addresses", "newest", "forgotten"),
    [
        ({"a": "x", "b": "y", "c": "z"}, "c", "a"),
        ({"a": "x", "b": "y", "c": "y"}, "c", "b"),
        ({"a": "x", "b": "y"}, "b", "a"),
        ({"a": "x", "b": "x", "c": "y", "d": "y"}, "a", "b"),
    ],
)
def test_oldest_key_of_the_fullest_address_is_forgotten(addresses: dict[str, str], newest: str, forgotten: str) -> None:
    assert first_to_forget(addresses, newest) == forgotten


def test_many_pages_and_results_of_one_address_leave_those_of_others() -> None:
    page, states = gr.Blocks(), VisitorStates()
    page.state_session_capacity = 3
    states.set_blocks(page)
    results: LastResults[int] = LastResults("it was removed", limit=3)
    for address, user in [("theirs", "polite"), *(("own", f"flood {number}") for number in range(9))]:
        with visited_by(Visitor(address)):
            states[user][1] = 5
            results.put(user, 5)
    assert list(states.session_data) == ["polite", "flood 7", "flood 8"]
    assert results.of("polite") == results.of("flood 8") == 5
    with pytest.raises(BadInput, match="it was removed"):
        results.of("flood 6")
