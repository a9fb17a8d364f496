"""The event handlers of the Parity tab: from the values of inputs to the values of outputs.

All users of the page share the same object. A user's session holds the user's current run and the last finished one,
whose traces are in files. The layout is in `layout`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import gradio as gr

from panels.parity.form import Form, request_of
from panels.parity.request import Request
from panels.parity.run import LastRuns, follow
from panels.parity.several import PROMPTS, RECORDINGS
from panels.parity.sides import (
    SideChoice,
    check_uploads,
    find_card,
    is_gguf_file,
    lines_of,
    offered,
    traceable,
    uploads_by_name,
    usual_sides,
)
from panels.parity.view import (
    precision_choices,
    result_html,
    several_html,
    sides_html,
    stage_detail_html,
    status_html,
)
from panels.running.cancel import ActiveRuns
from panels.running.kept_views import KeptViews
from panels.running.sessions import SessionPool
from panels.transcribe.segment_editor import saved
from panels.widgets.html_block import visibility, visibility_classes
from panels.widgets.markup import datum, element, text
from panels.widgets.samples import Sample, samples_named
from panels.widgets.tab_parts import run_buttons
from workbench.compare.precision import AUTO
from workbench.core.caller import Caller
from workbench.core.errors import BadInput
from workbench.core.sides import with_changes
from workbench.families import FAMILIES
from workbench.families.family import Family
from workbench.families.language.directory import PLACEHOLDER
from workbench.parity_lab import ParityRun, ParityRuns, page
from workbench.parity_lab.report.figures import stages_to_show
from workbench.parity_lab.report.several_report import several_page
from workbench.registry.cards import Card
from workbench.session.values import CONVERSATION, PROMPT, RECORDING
from workbench.system.memory import size

Update = dict[str, Any]
BARE, EXPORTS = "bare", "exports"  # CSS classes of columns and rows that events show and hide
PROMPT_INFO = f"Every layer is compared at all tokens of the prompt. {PLACEHOLDER} is the placeholder of an embedding."
CONVERSATION_INFO = "What you say to the model: a text, a recording, or a recording and a text after it."
DRAWN_BY = "workbench.parity_lab.report.figures"  # its imports take a second
EXPERIMENTS = {"cmvn": "off", "dither": "1", "threads": "", "kv_cache": ""}
"""Options and settings that are known causes of a divergence, and the value that a switch sets.

The value for dither is the amplitude with which recipes of FunASR and Kaldi train.
"""


class ParityActions:
    """The event handlers of the Parity tab."""

    def __init__(self, pool: SessionPool, samples: Sequence[Sample]):
        self.pool = pool
        self.samples = tuple(samples)
        self.last_runs = LastRuns()
        self._runs = ActiveRuns()

    # Inputs.

    def models(self) -> list[tuple[str, str]]:
        """Returns the models that can be compared, as choices."""
        return [(card.name, card.id) for card in traceable(self.pool.registry)]

    def choose(self, model: str, reference: str, candidates: str, uploads: list[str] | None) -> tuple[Any, ...]:
        """Returns the tab's values for a model: a note, the reference, candidates as buttons and as text, inputs,
        experiments, and what the names of the uploaded files fill.
        """
        card = self._card(model)
        default_sides = usual_sides(self.pool.registry, card)
        family = FAMILIES[card.family]
        texts = lines_of(candidates) or [default_sides[1]]
        reference_text = reference or default_sides[0]
        names = tuple(uploads_by_name(uploads or []))
        takes_sound = family.input in (RECORDING, CONVERSATION)
        speech = gr.update(visible=visibility(family.input == RECORDING))
        language = gr.update(visible=visibility(family.has_language_model))
        return (
            _note(self.pool, card),
            gr.update(choices=_references(self._offered(card), uploads), value=reference_text),
            self._sides_html(card, texts, uploads),
            "\n".join(filter(None, texts)),
            gr.update(elem_classes=visibility_classes(takes_sound, BARE)),
            gr.update(elem_classes=visibility_classes(family.reads_text, BARE)),
            gr.update(elem_classes=visibility_classes(family.input == PROMPT, "plain")),
            gr.update(**text_field(family)),
            gr.update(visible=visibility(family.input != CONVERSATION)),
            gr.update(label=PROMPTS if family.reads_text else RECORDINGS),
            *(speech, speech, speech, speech),
            *(language, language),
            gr.update(choices=precision_choices(names)),
            names,
        )

    def experiment(self, name: str, sides_text: str | None, value: Any) -> str:
        """Returns the sides in a text with one of the experiments switched on or off."""
        return "\n".join(with_changes(line, {name: _change(name, value)}) for line in (sides_text or "").splitlines())

    def experiments(self, sides_text: str | None, *values: Any) -> Any:
        """Returns the sides in a text with all experiments that are on, after a side was added."""
        switched_on = {name: change for name, value in zip(EXPERIMENTS, values) if (change := _change(name, value))}
        if not switched_on:
            return gr.skip()
        return "\n".join(with_changes(line, switched_on) for line in (sides_text or "").splitlines())

    def add_uploads(
        self,
        model: str,
        reference: str,
        candidates: str,
        uploads: list[str] | None,
        earlier_names: tuple[str, ...],
        precision: str,
    ) -> tuple[Any, ...]:
        """Makes uploaded files candidates, and removes those whose file was removed."""
        check_uploads(self.pool.guard, uploads or [])
        names = tuple(uploads_by_name(uploads or []))
        texts = [each for each in lines_of(candidates) if each not in earlier_names or each in names]
        texts += [each for each in names if each not in earlier_names and each not in texts]
        card = self._card(model)
        is_removed = precision in earlier_names and precision not in names
        return (
            gr.update(choices=_references(self._offered(card), uploads), value=reference),
            "\n".join(texts),
            self._sides_html(card, texts, uploads),
            names,
            gr.update(choices=precision_choices(names), value=AUTO if is_removed else precision),
        )

    def pick_sample(self, event: gr.EventData) -> tuple[str, str]:
        """Uses a sample as the recording; also returns its credit."""
        sample = samples_named(self.samples, datum(event._data, "sample"))[0]
        return str(sample.path), element("p", text(sample.credit), "muted small")

    def add_recording(self, recorded: str | None) -> tuple[Any, None]:
        """Uses the microphone's recording."""
        return recorded or gr.skip(), None

    def _card(self, model: str) -> Card:
        return find_card(self.pool.registry, model)

    def _offered(self, card: Card) -> tuple[SideChoice, ...]:
        return offered(self.pool.registry, card)

    def _sides_html(self, card: Card, texts: Sequence[str], uploads: list[str] | None) -> str:
        return sides_html(self._offered(card), uploads_by_name(uploads or []), texts)

    # Runs.

    def start(self, request: gr.Request, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Compares; yields the result, progress, Compare and Cancel button, the downloads, and the open stage.

        Args:
            values: the values of a `Form`.
        """
        form = Form(*values)
        check_uploads(self.pool.guard, form.uploads or [])
        parity_request = request_of(self.pool.registry, form)
        yield from self.run(parity_request, str(request.session_hash))

    def run(
        self, request: Request, user: str, html_of_run: Callable[[Any], str] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Computes a request and keeps its run; yields as `start`.

        Args:
            html_of_run: makes the HTML of the finished run; by default its verdicts and all stages.
        """
        html_of_run = html_of_run or run_html
        busy, idle = run_buttons(True), run_buttons(False)
        self.pool.guard.drawing.prepare(DRAWN_BY)
        try:
            with self._runs.run(user) as stop:
                for step in follow(self.pool.registry, request, stop, self.pool.guard):
                    status = status_html(step)
                    if step.run is not None:
                        self.last_runs.put(user, step.run)
                        exports = gr.update(elem_classes=visibility_classes(True, EXPORTS))
                        yield html_of_run(step.run), status, *idle, exports, None
                    elif step.stopped:
                        yield gr.skip(), status, *idle, gr.skip(), gr.skip()
                    else:
                        yield (
                            gr.skip(),
                            status,
                            *(busy if not step.stopping else (gr.skip(), gr.skip())),
                            gr.skip(),
                            gr.skip(),
                        )
        except Exception:
            yield gr.skip(), "", *idle, gr.skip(), gr.skip()
            raise

    def keep(self, views: KeptViews, user: str, values: Sequence[Any]) -> Any:
        """Stores the run that has ended, with what is shown of it; returns the list of earlier runs.

        Args:
            values: the values of a `Form`, then the HTML of result, progress and stage.
        """
        form, outputs = Form(*values[: views.inputs]), values[views.inputs :]
        if self.last_runs.get(user) is None or "Compared in" not in str(outputs[1]):  # it was stopped
            return gr.skip()
        return views.keep(
            f"{self._card(form.model).name} · {', '.join(lines_of(form.candidates)) or 'traces'}", form, outputs
        )

    def cancel(self, request: gr.Request) -> Update:
        """Stops the user's run."""
        self._runs.stop(str(request.session_hash))
        return gr.update(interactive=False)

    def leave(self, request: gr.Request) -> None:
        """Stops the run of a user who closed the page, and removes the stored last run."""
        self._runs.stop(str(request.session_hash))
        self.last_runs.drop(str(request.session_hash))

    # Results.

    def look_at_first(self, opened: tuple[int, str] | None, request: gr.Request) -> tuple[Any, Any]:
        """Opens the most informative stage after a finished run.

        This is the stage of the first candidate beyond tolerance where the error arises, else the stage with the
        largest error.
        """
        run = self.last_runs.get(str(request.session_hash))
        if opened is not None or run is None:  # the run was stopped
            return gr.skip(), gr.skip()
        if not isinstance(run, ParityRun):  # a run on several inputs keeps no stage
            return "", None
        first_stage = first_look(run)
        return (stage_detail_html(run, *first_stage, self.pool.guard.draw), first_stage) if first_stage else ("", None)

    def look(
        self, opened: tuple[int, str] | None, event: gr.EventData, request: gr.Request
    ) -> tuple[str, tuple[int, str]]:
        """Opens a stage of a candidate; by default, of the candidate that is open."""
        run = self.last_runs.of(str(request.session_hash))
        if not isinstance(run, ParityRun):
            raise BadInput("a comparison over several inputs keeps no stages; compare one of them")
        stage = datum(event._data, "stage")
        side = event._data.get("side") if isinstance(event._data, dict) else None
        place = int(side) if isinstance(side, str) and side.isdecimal() else opened[0] if opened else 0
        candidates_with_stage = [
            number
            for number, each in enumerate(run.outcomes)
            if each.comparison and any(stage_comparison.stage == stage for stage_comparison in each.comparison.stages)
        ]
        if not candidates_with_stage:
            raise BadInput(f"no candidate was compared at {stage!r:.80}; pick a stage of those shown now")
        place = place if place in candidates_with_stage else candidates_with_stage[0]
        return stage_detail_html(run, place, stage, self.pool.guard.draw), (place, stage)

    def save_page(self, request: gr.Request) -> dict[str, Any]:
        """Saves the report as one HTML file."""
        run = self.last_runs.of(str(request.session_hash))
        return saved(f"{file_name(run)}.html", "text/html", _document(run, self.pool.guard.draw).encode())

    def save_json(self, request: gr.Request) -> dict[str, Any]:
        """Saves the report as JSON."""
        run = self.last_runs.of(str(request.session_hash))
        return saved(f"{file_name(run)}.json", "application/json", run.to_json().encode())


def first_look(run: ParityRun) -> tuple[int, str] | None:
    """Returns the candidate's index and the stage to open first."""
    compared = [(place, each) for place, each in enumerate(run.outcomes) if each.comparison and each.verdict]
    for place, each in sorted(compared, key=lambda pair: pair[1].status != "beyond"):
        assert each.comparison and each.verdict
        if each.verdict.faulty_stage:
            return place, each.verdict.faulty_stage
        for stage in stages_to_show(each.comparison, each.verdict.largest_own, 1) or each.comparison.stages[:1]:
            return place, stage.stage
    return None


def run_html(run: ParityRun | ParityRuns) -> str:
    """Returns a finished run with its most informative stage marked."""
    if not isinstance(run, ParityRun):
        return several_html(run)
    _, stage = first_look(run) or (0, "")
    return result_html(run, stage)


def _document(run: ParityRun | ParityRuns, call: Caller) -> str:
    return call(page, run) if isinstance(run, ParityRun) else call(several_page, run)


def file_name(run: ParityRun | ParityRuns) -> str:
    """Returns a report's file name without extension: the model and the day."""
    model = re.sub(r"[^A-Za-z0-9_.-]+", "-", run.model).strip("-.")
    return f"parity-{model}-{datetime.now():%Y-%m-%d}"


def text_field(family: Family) -> dict[str, Any]:
    """Returns the label and the explanation of the text field for models of a family."""
    if family.input == CONVERSATION:
        return {"label": "Text", "info": CONVERSATION_INFO}
    return {"label": "Prompt", "info": PROMPT_INFO}


def _change(name: str, value: Any) -> str | None:
    """Returns an experiment's setting as written in a side; None if it is off."""
    if isinstance(value, bool):
        return EXPERIMENTS[name] if value else None
    return (value or "").strip() or None


def _references(choices: Sequence[SideChoice], uploads: list[str] | None) -> list[tuple[str, str]]:
    labels_and_sides = [(f"{each.title} {kind.label}", kind.side) for each in choices for kind in each.kinds]
    traces = [name for name in uploads_by_name(uploads or []) if not is_gguf_file(name)]
    return [*labels_and_sides, *((f"Trace {name}", name) for name in traces)]


def _note(pool: SessionPool, card: Card) -> str:
    """Returns a note on a model for the user before a comparison."""
    state = pool.registry.availability(card, pool.registry.default_runtime(card))
    megabytes = f" {size(card.megabytes * 10**6)}" if card.megabytes else ""
    fetches = f"downloads{megabytes} first" if state.fetches else ""
    sentences = ". ".join(filter(None, (FAMILIES[card.family].title, card.about, fetches)))
    return element("p", text(sentences), "muted small")
