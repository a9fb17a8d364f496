"""Keeps what a tab showed of its runs: the values of its inputs, their files, and the results as HTML.

A link shows a run again as it was. Other values that a model computed are gone; to see them, the user repeats the run.
This file knows no tab.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from panels.running.kept_files import found_file, stored_files
from panels.running.run_store import RunStore
from panels.running.sent_results import SentResults
from panels.widgets.markup import datum, element, text
from panels.widgets.run_history import history_value
from workbench.core.errors import BadInput

JSON_SCALARS = (str, int, float, bool)
EARLIER_RESULTS = "These are the results of an earlier run. The last run has no results."
STORED_RESULTS = "These are the stored results of an earlier run. To see details, run it again."


@dataclass(frozen=True)
class KeptViews:
    """The kept runs of one tab.

    Args:
        files: the places of the inputs that hold files.
        inputs: how many inputs the tab has.
        outputs: how many HTML outputs the tab has.
        sent: the results that the server has sent; no other HTML is stored.
    """

    store: RunStore
    sent: SentResults
    tab: str
    inputs: int
    outputs: int
    files: Collection[int] = ()

    def keep(self, title: str, values: Sequence[Any], results: Sequence[Any]) -> Any:
        """Stores a run that has ended; returns the new value of the list of runs."""
        paths = [path for place in self.files for path in _paths(values[place])]
        descriptions, files = stored_files(paths)
        content = {
            "tab": self.tab,
            "title": title,
            "values": [
                _file_value(value, descriptions) if place in self.files else _json_value(value)
                for place, value in enumerate(values)
            ],
            "shown": [each if each in self.sent else "" for each in results],
        }
        return history_value(self.tab, self.store.hours, self.store.keep(content, files), title)

    def restore(self, event: gr.EventData) -> list[Any]:
        """Returns values for the run of a link: list, inputs, outputs, and a note above them.

        A value that was not kept is skipped. If the run is not kept any more, every value is skipped.
        """
        key = datum(event._data, "run")
        try:
            content, folder = self.store.read(key)
            if content.get("tab") != self.tab or len(content["values"]) != self.inputs:
                raise BadInput("that link leads to a run of another tab, or of another version of this page")
        except BadInput as error:
            gr.Warning(text(error))
            history = history_value(self.tab, self.store.hours, gone=key)
            return [history, *[gr.skip()] * (self.inputs + self.outputs + 1)]
        return [
            history_value(self.tab, self.store.hours, key, content["title"]),
            *(self._value(place, value, folder) for place, value in enumerate(content["values"])),
            *content["shown"],
            _note(STORED_RESULTS),
        ]

    def _value(self, place: int, value: Any, folder: Path) -> Any:
        if place not in self.files:
            return gr.skip() if value is None else value
        listed = value if isinstance(value, list) else [value] if value else []
        found = [path for each in listed if Path(path := found_file(each, folder)).is_file()]
        if isinstance(value, list):
            return found or None
        return found[0] if found else None


def earlier_note(has_results: bool) -> Any:
    """Returns the note for a run that failed while the page shows results of an earlier one.

    Args:
        has_results: whether the page shows any results.
    """
    return _note(EARLIER_RESULTS) if has_results else gr.skip()


def note_beside(empty: str, results: str) -> Any:
    """Returns the note of `earlier_note`, for results as HTML.

    Args:
        empty: the HTML in place of the results before the first run.
    """
    return earlier_note(results not in ("", empty))


def _note(sentence: str) -> Any:
    return element("p", text(sentence), "note earlier", role="status")


def _file_value(value: Any, descriptions: Mapping[str, Any]) -> Any:
    """Returns the JSON of the value of an input of one file, or of several."""
    return descriptions[value] if isinstance(value, str) else [descriptions[path] for path in _paths(value)]


def _paths(value: Any) -> list[str]:
    """Returns the paths in the value of an input of files."""
    return [value] if isinstance(value, str) else [each for each in value or [] if isinstance(each, str)]


def _json_value(value: Any) -> Any:
    """Returns the value as JSON can hold it, or None."""
    if isinstance(value, (list, tuple)):
        return list(value) if all(isinstance(each, JSON_SCALARS) for each in value) else None
    return value if isinstance(value, JSON_SCALARS) else None
