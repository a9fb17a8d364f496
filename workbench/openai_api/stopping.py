"""Ends a text before the first of several stop texts, and never shows a part of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.openai_api.errors import Refusal

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1000


def read_stops(value: Any) -> tuple[str, ...]:
    """Returns the stop texts of a request: one, a list, or none."""
    found = [value] if isinstance(value, str) else value
    if found is None or (isinstance(value, str) and not value):
        return ()
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise Refusal(f"stop is {value!r:.80}; expected a text or a list of texts", "stop", "invalid_type")
    if len(found) > MAX_STOPS or any(len(each) > MAX_STOP_CHARACTERS for each in found):
        raise Refusal(
            f"stop has {len(found)} texts; expected at most {MAX_STOPS}, of up to {MAX_STOP_CHARACTERS} characters",
            "stop",
        )
    return tuple(found)


class Stopping:
    """Takes a text piece by piece and gives it back up to the first stop text.

    The end of the text that may begin a stop text is held back until it is clear that it does not.
    """

    def __init__(self, stops: Sequence[str]):
        self._stops = tuple(stops)
        self._pending = ""
        self.text = ""  # all that was given back
        self.ended = False

    def feed(self, piece: str, last: bool = False) -> str:
        """Returns the text that can be shown now; all that was held back if the piece is the last one."""
        if self.ended:
            return ""
        text = self._pending + piece
        places = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self.ended = True
            released, self._pending = text[: min(places)[0]], ""
        else:
            overlap = 0 if last else max((_overlap(text, stop) for stop in self._stops), default=0)
            released, self._pending = text[: len(text) - overlap], text[len(text) - overlap :]
        self.text += released
        return released


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of the text that a stop text begins with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if stop.startswith(text[-n:])), 0)
