"""The event handlers of the Transcribe tab: from the values of inputs to the values of outputs.

All users of the page share the same objects. A user's data are in that user's state, and running runs belong to the
user's session. The layout is in `layout`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import gradio as gr

from panels.running.cancel import ActiveRuns
from panels.running.choices import ModelOnRuntime, RuntimeOffer, offers
from panels.running.sessions import SessionPool
from panels.transcribe.job import Row, RunState, prepare
from panels.transcribe.lanes import lanes_of
from panels.transcribe.many import export_all
from panels.transcribe.run import run
from panels.transcribe.segment_editor import editor_value, export, is_edited, rows_of, transcript_of
from panels.transcribe.view import results_html, status_html
from panels.widgets.engine_inputs import RUNTIME, read_settings
from panels.widgets.html_block import visibility
from panels.widgets.markup import datum, element, text
from panels.widgets.model_chooser import chooser_value, chosen_in, with_sizes
from panels.widgets.option_inputs import OptionField, by_family, read_inputs, visible_for
from panels.widgets.recording_actions import RecordingActions, sample_values
from panels.widgets.samples import Sample, samples_named
from panels.widgets.tab_parts import run_buttons
from panels.widgets.templates import render
from panels.widgets.timeline import Timelines, timeline_value
from workbench.core.errors import BadInput

Update = dict[str, Any]
log = logging.getLogger(__name__)


class Actions(RecordingActions):
    """The event handlers of the Transcribe tab."""

    def __init__(
        self, pool: SessionPool, timelines: Timelines, samples: Sequence[Sample], options: Sequence[OptionField]
    ):
        self.pool = pool
        self.timelines = timelines
        self.samples = tuple(samples)
        self.options = tuple(options)
        self._runs = ActiveRuns()

    # Inputs.

    def refresh(self, chooser: Any) -> tuple[dict[str, Any], str, Update]:
        """Returns the models that can be chosen now, without changing the choice; why the others cannot; and the engine
        settings.

        The settings of engines are shown to the owner, if there can be an engine.
        """
        listed = offers(self.pool.registry)
        engines = not self.pool.guard.public and any(
            each.cell.runtime == RUNTIME and each.possible and not each.elsewhere for each in listed
        )
        return (
            chooser_value(listed, chosen_in(chooser)),
            unavailable_html(listed),
            gr.update(visible=visibility(engines)),
        )

    def measure(self, chooser: Any, event: gr.EventData) -> dict[str, Any]:
        """Looks up the size of a model's files in every quantisation; it takes some seconds the first time."""
        return with_sizes(self.pool.registry, chooser, datum(event._data, "cell"))

    def renew(self, chooser: Any) -> dict[str, Any]:
        """Returns the models that can be chosen now, as a run may have downloaded or converted some; the choice
        stays.
        """
        return chooser_value(offers(self.pool.registry), chosen_in(chooser), keep=True)

    def open_ahead(self, chooser: Any) -> None:
        """Begins to load models before the first press of Run, if no model is loaded yet.

        It loads only the demo models that are ticked, because they are small.
        """
        if not self.pool.opens_ahead or self.pool.residents():
            return
        ticked = set(chosen_in(chooser))
        for offer in offers(self.pool.registry):
            if offer.cell.value in ticked and offer.ready and offer.card.kind == "demo":
                cell = offer.cell
                load = partial(self.pool.session, cell.model, cell.runtime, cell.quantization)
                threading.Thread(target=quietly, args=(load,), name=f"ahead: {cell.value}", daemon=True).start()

    def choose_instead(self, event: gr.EventData) -> dict[str, Any]:
        """Ticks only the model of the pressed button, which may understand what the others do not."""
        return chooser_value(offers(self.pool.registry), [datum(event._data, "cell")])

    def toggle_options(self, chooser: Any) -> list[Update]:
        """Shows the options of the chosen models."""
        visibilities = visible_for(self.options, self.pool.registry, chosen_in(chooser))
        return [gr.update(visible=visibility(each)) for each in visibilities]

    def pick_sample(self, chooser: Any, event: gr.EventData) -> tuple[list[str], str, str, str]:
        """Uses a sample, or all that the ticked models were made for, as the recordings; also returns the reference
        text, the credit, and the sample's text.
        """
        ticked = {ModelOnRuntime.parse(value).model for value in chosen_in(chooser)}
        domains = {card.domain for card in self.pool.registry.cards() if card.id in ticked}
        return sample_values(samples_named(self.samples, datum(event._data, "sample"), domains))

    def listen(self, files: list[str] | None, state: RunState, opened: Row | None) -> dict[str, Any]:
        """Returns the timeline of the recordings, with their transcripts so far."""
        lanes = lanes_of(state)
        shown_lanes = {path: lanes[path] for path in lanes if path in (files or []) or (opened and path == opened.path)}
        return timeline_value(self.timelines, files or [], shown_lanes, opened.key if opened else "")

    # Runs.

    def start(
        self,
        files: list[str] | None,
        chooser: Any,
        reference: str,
        normaliser: str,
        request: gr.Request,
        *values: Any,
    ) -> Iterator[tuple[Any, ...]]:
        """Runs the models; yields table, progress, Run and Cancel button, the table's state, and the timeline.

        Args:
            values: the values of the options' inputs, then of the settings' inputs.
        """
        options = by_family(self.options, read_inputs(self.options, values[: len(self.options)]))
        settings = {RUNTIME: read_settings(values[len(self.options) :])}
        cells = chosen_in(chooser)
        job = prepare(self.pool.registry, files or [], cells, reference or "", normaliser, {}, options, settings)
        try:
            with self._runs.run(str(request.session_hash)) as stop:
                transcripts = 0
                for state in run(self.pool, job, stop):
                    line, before = gr.skip(), transcripts
                    transcripts = sum(row.transcript is not None for row in state.rows)
                    if transcripts != before:
                        line = timeline_value(self.timelines, files or [], lanes_of(state))
                    yield results_html(state), status_html(state), *run_buttons(not state.finished), state, line
        except Exception:
            yield gr.skip(), "", *run_buttons(False), gr.skip(), gr.skip()
            raise

    def cancel(self, request: gr.Request) -> Update:
        """Stops the user's run; finished rows stay on the page."""
        self.leave(request)
        return gr.update(interactive=False)

    def leave(self, request: gr.Request) -> None:
        """Stops the run of a user who closed the page."""
        self._runs.stop(str(request.session_hash))

    # Details of a row.

    def look(
        self,
        state: RunState,
        opened: Row | None,
        editor: Any,
        edits: dict[str, Any],
        files: list[str] | None,
        event: gr.EventData,
    ) -> tuple[Any, ...]:
        """Opens the row whose button was pressed; stores the edits of the previously open one."""
        row = state.row(datum(event._data, "key"))
        transcript_of(row)
        if opened is not None and is_edited(editor):
            edits = {**edits, opened.key: rows_of(editor, opened.key)}
        return self._opened(row, edits, files, state)

    def look_at_first(
        self, state: RunState, opened: Row | None, editor: Any, files: list[str] | None
    ) -> tuple[Any, ...]:
        """Opens the first finished row after a run, unless that would lose edits of an earlier one."""
        first = next((row for row in state.rows if row.transcript), None)
        if first is None or (opened is not None and is_edited(editor)):
            return (gr.skip(),) * 6
        return self._opened(first, {}, files, state)

    def _opened(self, row: Row, edits: dict[str, Any], files: list[str] | None, state: RunState) -> tuple[Any, ...]:
        """Returns values for: panel, title, editor, timeline, opened row, edits."""
        title = element("h3", text(row.title) + " " + element("span", text(row.recording), "muted"), tabindex="-1")
        line = self.listen(files, state, row)
        return gr.update(visible=True), title, editor_value(row, edits.get(row.key)), line, row, edits

    def save(self, form: str, opened: Row | None, editor: Any) -> dict[str, Any]:
        """Saves the open row with its edits as a file of that format."""
        if opened is None:
            raise BadInput("no row is open; press Segments and export in one")
        return export(opened, editor, form)

    def save_all(self, state: RunState, event: gr.EventData) -> dict[str, Any]:
        """Saves all transcripts as one file, in the format of the button that was pressed."""
        return export_all(state, datum(event._data, "form"))

    def revert(self, opened: Row | None) -> dict[str, Any]:
        """Restores the model's segments of the open row."""
        if opened is None:
            raise BadInput("no row is open; press Segments and export in one")
        return editor_value(opened)


def quietly(work: Callable[[], Any]) -> None:
    """Does work that nobody waits for, and logs its error; a run that needs the work gets the error again."""
    try:
        work()
    except Exception as error:
        log.info("a model could not be opened ahead", exc_info=error)


def unavailable_html(listed: Sequence[RuntimeOffer]) -> str:
    """Returns the models and runtimes that cannot be chosen, each with the reason; empty if there are none."""
    missing = [offer for offer in listed if not offer.possible]
    if not missing:
        return ""
    return render("transcribe/view.html", "unavailable", missing)
