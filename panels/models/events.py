"""What the events of the Models tab do: sizes of files, unloading, the log of an engine, the idle time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import gradio as gr

from panels.models.view import cards_html, log_html, residents_html
from panels.running.choices import ModelOnRuntime
from panels.running.sessions import SessionPool
from panels.widgets.markup import datum
from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.runtimes import RUNTIMES
from workbench.registry.cards import Card
from workbench.registry.registry import Registry


class ModelsActions:
    """The event handlers of the Models tab.

    Args:
        tab: the tab itself; the events of the row of tabs name it by its label.
    """

    def __init__(self, pool: SessionPool, tab: gr.Tab):
        self._pool = pool
        self._tab = tab

    def select_tab(self, event: gr.EventData) -> tuple[Any, ...]:
        """Returns new values for the tab when it is opened; the timer only runs while the tab is visible."""
        if not self._is_opened_by(event):
            return gr.skip(), gr.skip(), gr.skip(), gr.update(active=False)
        minutes = gr.update(value=self._pool.idle_minutes)
        return residents_html(self._pool), cards_html(self._pool), minutes, gr.update(active=True)

    def measure_files(self, event: gr.EventData) -> Iterator[Any]:
        """Yields the models with the sizes of their files as they are computed.

        The first time, this takes some seconds per model.
        """
        registry = self._pool.registry
        for card, runtime in _unmeasured(registry) if self._is_opened_by(event) else []:
            with suppress(WorkbenchError):  # the error appears when the model is opened
                registry.measure(card, runtime)
            yield cards_html(self._pool)
        yield gr.skip()

    def refresh(self, log_name: str) -> tuple[Any, Any]:
        """Returns the sessions in memory, and the open log."""
        return residents_html(self._pool), log_html(self._pool, log_name) if log_name else gr.skip()

    def show_log(self, event: gr.EventData) -> tuple[str, str]:
        """Returns the log of an engine, and its name."""
        self._pool.guard.owners("the log of an engine")
        name = datum(event._data, "name")
        log = log_html(self._pool, name)
        if not log:
            raise BadInput("that engine has ended, and its log is gone; start it again with a run")
        return log, name

    def unload(self, event: gr.EventData) -> str:
        """Ends a session's process; returns the sessions in memory."""
        self._pool.guard.owners("unloading a model")
        cell = ModelOnRuntime.parse(datum(event._data, "cell"))
        self._pool.unload(cell.model, cell.runtime, cell.quantization or None)
        return residents_html(self._pool)

    def set_idle(self, minutes: float | None) -> None:
        """Sets the minutes without use after which models are unloaded."""
        if minutes == self._pool.idle_minutes:
            return
        self._pool.guard.owners("the time after which models are unloaded")
        self._pool.idle_minutes = minutes

    def _is_opened_by(self, event: gr.EventData) -> bool:
        return bool(datum(event._data, "value") == self._tab.label)


def _unmeasured(registry: Registry) -> list[tuple[Card, str]]:
    """Returns the local models whose file sizes are unknown, with the runtime that opens them."""
    return [
        (card, runtime)
        for card in registry.cards()
        for runtime in RUNTIMES
        if registry.availability(card, runtime).ready
        and any(each.nbytes is None for each in registry.weights(card, runtime))
    ]
