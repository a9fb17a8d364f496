"""The values that the server remembers for each open page, because its events need them.

Gradio also remembers the configuration and the last value of every component, for links to a state of the page. That
takes 1.4 MB for each visitor, plus the size of the shown reports. This page has no such links, so none of that is kept.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gradio import routes
from gradio.state_holder import SessionState, StateHolder

from panels.running.shares import first_to_forget
from workbench.core.visitors import current_visitor


class VisitorState(SessionState):
    """The state of one open page, and the network address of the visitor who opened it."""

    def __init__(self, blocks: Any, address: str):
        super().__init__(SimpleNamespace(default_config=blocks.default_config, blocks={}))  # type: ignore[arg-type]
        self.address = address

    def __setitem__(self, key: int, value: Any) -> None:
        super().__setitem__(key, value)
        self.config_values.clear()

    def _update_config(self, key: int) -> None:
        """Remembers no configuration."""

    def _update_value_in_config(self, key: int, value: Any) -> None:
        """Remembers no value of a component."""


class VisitorStates(StateHolder):
    """The states of all open pages. If there are too many, one of the address with the most is forgotten."""

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            self.session_data[session_id] = VisitorState(self.blocks, current_visitor().address)
        return super().__getitem__(session_id)

    def update(self, session_id: str) -> None:
        """Notes that a page is in use."""
        with self.lock:
            self.session_data.move_to_end(session_id)
            if len(self.session_data) > self.capacity:
                addresses = {key: getattr(state, "address", "") for key, state in self.session_data.items()}
                forgotten = first_to_forget(addresses, session_id)
                del self.session_data[forgotten]
                self.time_last_used.pop(forgotten, None)


def remember_little() -> None:
    """Makes servers that Gradio starts from now on use `VisitorStates`."""
    vars(routes)["StateHolder"] = VisitorStates
