"""The event handlers of the Transcribe tab for runs that are kept: after a run, and for a link to one."""

from __future__ import annotations

from typing import Any

import gradio as gr

from panels.running.choices import offers
from panels.running.kept_views import earlier_note
from panels.running.run_store import RunStore
from panels.running.sessions import SessionPool
from panels.transcribe.job import RunState
from panels.transcribe.keeping import TAB, RunInputs, find, keep, title_of
from panels.transcribe.view import results_html, status_html
from panels.widgets.markup import datum, text
from panels.widgets.model_chooser import chooser_value, chosen_in
from panels.widgets.run_history import history_value
from workbench.core.errors import BadInput


class KeptRunActions:
    """Keeps runs, and shows them again.

    Args:
        inputs: how many options and settings the tab has.
    """

    def __init__(self, store: RunStore, pool: SessionPool, inputs: int):
        self._store, self._pool, self._inputs = store, pool, inputs

    def keep(
        self, state: RunState, files: list[str] | None, chooser: Any, reference: str, normaliser: str, *values: Any
    ) -> Any:
        """Stores the run that has ended; returns the list's value with it. A run without any result is not kept."""
        if not any(row.transcript or row.writing for row in state.rows):
            return gr.skip()
        inputs = RunInputs(tuple(chosen_in(chooser)), reference or "", normaliser, values)
        return history_value(TAB, self._store.hours, keep(self._store, state, inputs), title_of(state))

    def restore(self, chooser: Any, event: gr.EventData) -> list[Any]:
        """Returns the values of the tab for the run of a link: list, inputs, table, progress, state.

        A run that is not kept any more leaves the tab as it is.
        """
        key = datum(event._data, "run")
        try:
            found = find(self._store, key)
        except BadInput as error:
            gr.Warning(text(error))
            return [history_value(TAB, self._store.hours, gone=key), *[gr.skip()] * (4 + self._inputs + 3)]
        inputs, state = found.inputs, found.state
        values = inputs.values if len(inputs.values) == self._inputs else (None,) * self._inputs
        return [
            history_value(TAB, self._store.hours, key, title_of(state)),
            list(found.recordings),
            chooser_value(offers(self._pool.registry), inputs.cells),
            inputs.reference,
            inputs.normaliser,
            *(gr.skip() if value is None else value for value in values),
            results_html(state),
            status_html(state),
            state,
        ]

    def mark_earlier(self, state: RunState) -> Any:
        """Returns the note that the results on the page are from an earlier run, after a run that was refused."""
        return earlier_note(state.finished)
