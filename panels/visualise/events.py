"""The event handlers of the Visualise tab: from the values of inputs to the values of outputs.

All users of the page share the same object. The user's session keeps the pictures that a user looks at, and the values
computed for them. The layout is in `layout`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from panels.running.cancel import ActiveRuns
from panels.running.choices import ModelOnRuntime, chosen_offers
from panels.running.last_results import LastResults
from panels.running.sessions import SessionPool
from panels.visualise.own_recordings import OwnRecordings
from panels.visualise.run import TASKS, PictureSet, Request, Scenes, Step, follow, request_of, traceable_offers
from panels.visualise.view import status_html, views_html
from panels.widgets.html_block import visibility, visibility_classes
from panels.widgets.markup import datum, element, text
from panels.widgets.option_inputs import OptionField, by_family, read_inputs, shown_options, visible_for
from panels.widgets.recording_actions import unreadable_html
from panels.widgets.samples import Sample, samples_named
from panels.widgets.tab_parts import run_buttons
from workbench.core.errors import BadInput, NoRoom
from workbench.core.options import option_specs
from workbench.decoding.ctc_options import CtcHeadOptions
from workbench.families import FAMILIES
from workbench.visualise.options import ViewOptions

Update = dict[str, Any]
NOTHING = ""  # the choice of no second side
FIRST_VIEW = "filterbank"
ACCORDION = ("card", "accordion-card")
BEAM_SEARCH = frozenset(option_specs(CtcHeadOptions))  # these options belong to the Decode tab
# These options change no picture: some cut a recording into segments, others add details to the result.
UNOFFERED_OPTIONS = (
    "vad",
    "max_segment_seconds",
    "end_silence_ms",
    "batch_size",
    "timestamps",
    "alternatives",
    "probabilities",
)
PICTURES_REMOVED = "these pictures are not kept any more; press Show again"
# The parts of a link's state that the server reads; the browser reads the others, such as the cursor.
SAMPLE, OWN_RECORDING, TEXT, FIRST_MODEL, SECOND_MODEL, VIEW = "sample", "recording", "text", "a", "b", "view"


class VisualiseActions:
    """The event handlers of the Visualise tab."""

    def __init__(self, pool: SessionPool, samples: Sequence[Sample], own_recordings: OwnRecordings):
        self.pool = pool
        self.own_recordings = own_recordings
        self.samples = tuple(samples)
        self.options = tuple(OptionField(spec, (), True) for spec in option_specs(ViewOptions))
        self.model_options = tuple(
            each for each in shown_options(pool.registry, *TASKS, guard=pool.guard) if _matters(each)
        )
        self._picture_sets: LastResults[PictureSet] = LastResults(PICTURES_REMOVED)
        self._scenes: LastResults[Scenes] = LastResults(PICTURES_REMOVED)
        # The keys of each user's last two sets of pictures. The browser may still fetch the older set.
        self._keys: LastResults[tuple[str, ...]] = LastResults(PICTURES_REMOVED, pool.guard.limits.sessions)
        # The values of the inputs at each user's last run.
        self._forms: LastResults[tuple[Any, ...]] = LastResults(PICTURES_REMOVED, pool.guard.limits.sessions)
        self._runs = ActiveRuns()

    def find(self, key: str) -> PictureSet:
        """Returns the pictures with this key; raises `BadInput` if they are not kept."""
        return self._picture_sets.of(key)

    # Inputs.

    def refresh(self, model: str | None, compared_model: str | None, view: str) -> tuple[Any, ...]:
        """Returns the models that can be chosen now, without changing the choice, and what `choose` returns."""
        choices = [(each.title, each.cell.value) for each in traceable_offers(self.pool.registry) if each.possible]
        values = [value for _, value in choices]
        first = model if model in values else next(iter(values), None)
        second = compared_model if compared_model in values else NOTHING
        return (
            *_choices(choices, first, second),
            *self.choose(first, second, view),
        )

    def choose(self, model: str | None, compared_model: str | None, view: str) -> tuple[Any, ...]:
        """Returns for these models: the view, the list of views, inputs for a recording and a text, and options.

        The options of the view come before those of the models, each after the box around them.
        """
        from workbench.visualise.views import VIEWS

        reasons = self._reasons([each for each in (model, compared_model) if each])
        if view not in VIEWS or reasons.get(view):
            usable_views = [name for name in VIEWS if not reasons.get(name)]
            view = FIRST_VIEW if FIRST_VIEW in usable_views else next(iter(usable_views), view)
        view_option_names = VIEWS[view].options if view in VIEWS else ()
        cells = [each for each in (model, compared_model) if each]
        families = [FAMILIES[card.family] for card in self._cards(cells)]
        is_visible = visible_for(self.model_options, self.pool.registry, cells)
        return (
            view,
            views_html(view, reasons),
            gr.update(
                elem_classes=visibility_classes(any(each.input != "prompt" for each in families) or not families)
            ),
            gr.update(visible=visibility(any(each.reads_text for each in families))),
            gr.update(elem_classes=visibility_classes(bool(view_option_names), "card")),
            *(gr.update(visible=visibility(each.spec.name in view_option_names)) for each in self.options),
            gr.update(elem_classes=visibility_classes(any(is_visible), *ACCORDION)),
            *(gr.update(visible=visibility(each)) for each in is_visible),
        )

    def press_view(self, model: str | None, compared_model: str | None, event: gr.EventData) -> tuple[Any, ...]:
        """Chooses the view whose button was pressed; returns what `choose` does."""
        return self.choose(model, compared_model, datum(event._data, "view"))

    def _cards(self, cells: Sequence[str]) -> list[Any]:
        models = {ModelOnRuntime.parse(cell).model for cell in cells}
        return [card for card in self.pool.registry.cards() if card.id in models and card.family in FAMILIES]

    def _reasons(self, cells: Sequence[str]) -> dict[str, str]:
        """Returns, by view, why a view is not available for one of these models."""
        from workbench.visualise.views import VIEWS

        reasons: dict[str, str] = {}
        cards = {card.id: card for card in self._cards(cells)}
        for cell in map(ModelOnRuntime.parse, cells):
            if cell.model not in cards:
                continue
            card = cards[cell.model]
            for name, view in VIEWS.items():
                if name not in reasons and (reason := view.why_not(FAMILIES[card.family], cell.runtime)):
                    reasons[name] = f"{card.name} on {cell.how}: {reason}."
        return reasons

    def pick_sample(self, event: gr.EventData) -> tuple[str, str, str]:
        """Uses a sample as the recording; also returns its credit and its name."""
        return self._sample(datum(event._data, SAMPLE))

    def _sample(self, name: str) -> tuple[str, str, str]:
        sample = samples_named(self.samples, name)[0]
        return str(sample.path), element("p", text(sample.credit), "muted small"), Path(sample.path).name

    def own_recording(self, path: str | None) -> tuple[str, str]:
        """Returns what is wrong with a user's own recording, in place of a credit, and an empty sample's name."""
        return unreadable_html(path), ""

    def add_recording(self, recorded: str | None) -> tuple[Any, None, str, str]:
        """Uses the microphone's recording."""
        return recorded or gr.skip(), None, "", ""

    def restore(self, event: gr.EventData) -> tuple[Any, ...]:
        """Returns the state of a link: recording, credit, sample, models, and what `choose` returns."""
        link_state: Mapping[str, Any] = event._data if isinstance(event._data, dict) else {}
        state = {name: value for name, value in link_state.items() if isinstance(value, str)}
        listed_offers = traceable_offers(self.pool.registry)
        choices = [(each.title, each.cell.value) for each in listed_offers if each.possible]
        model, compared_model = (
            chosen_offers([state[name]], listed_offers)[0].cell.value if state.get(name) else NOTHING
            for name in (FIRST_MODEL, SECOND_MODEL)
        )
        model = model or next((value for _, value in choices), NOTHING)
        recording, credit, name = self._linked_recording(state)
        view, views, speech, text_update, settings, *updates = self.choose(
            model, compared_model, state.get(VIEW, FIRST_VIEW)
        )
        view_updates, (models_card, *model_updates) = updates[: len(self.options)], updates[len(self.options) :]
        return (
            recording,
            credit,
            name,
            *_choices(choices, model, compared_model),
            view,
            views,
            speech,
            {**text_update, "value": state.get(TEXT, "")},
            settings,
            *_linked(view_updates, self.options, state),
            models_card,
            *_linked(model_updates, self.model_options, state),
        )

    def _linked_recording(self, state: Mapping[str, str]) -> tuple[str | None, str, str]:
        """Returns the recording of a link, its credit, and its name if it is a sample."""
        if state.get(SAMPLE):
            return self._sample(state[SAMPLE])
        return (self.own_recordings.find(state[OWN_RECORDING]) if state.get(OWN_RECORDING) else None), "", ""

    # Pictures.

    def start_if_ready(
        self, request: gr.Request, recording: str | None, sample: str, text_input: str | None, *values: Any
    ) -> Iterator[tuple[Any, ...]]:
        """Calls `start` if there is something to look at. Events other than a press of Show come here."""
        if recording or (text_input or "").strip():
            yield from self.start(request, recording, sample, text_input, *values)

    def start_if_changed(self, request: gr.Request, *form: Any) -> Iterator[tuple[Any, ...]]:
        """Calls `start_if_ready` unless the last run had the same inputs.

        A list of choices also sends its value when it only loses the focus.
        """
        if self._forms.get(str(request.session_hash)) != form:
            yield from self.start_if_ready(request, *form)

    def start(
        self,
        request: gr.Request,
        recording: str | None,
        sample: str,
        text_input: str | None,
        model: str | None,
        compared_model: str | None,
        view: str,
        *values: Any,
    ) -> Iterator[tuple[Any, ...]]:
        """Makes the pictures; yields what the scripts draw, the progress, and the Show and Cancel buttons.

        Args:
            values: the values of the inputs for the view's options, then for the models' options.
        """
        options = read_inputs(self.options, values[: len(self.options)])
        changed_options = self._changed(values[len(self.options) :])
        options_by_family = by_family(changed_options, {each.key: value for each, value in changed_options.items()})
        cells = [model or "", compared_model or ""]
        picture_request = request_of(
            self.pool.registry,
            cells,
            recording,
            text_input,
            view,
            options,
            of_family=options_by_family,
            sample=sample,
        )
        used_options = {each: value for each, value in changed_options.items() if _has_option(each, picture_request)}
        state = {
            SAMPLE: sample if recording else "",
            TEXT: (text_input or "").strip(),
            **self._state(picture_request, used_options),
        }
        user = str(request.session_hash)
        self._forms.put(user, (recording, sample, text_input, model, compared_model, view, *values))
        self._runs.stop(user)  # an earlier run, which this one replaces
        scenes = self._scenes.get(user)
        if scenes is None:
            scenes = Scenes()
            self._scenes.put(user, scenes)
        try:
            with self._runs.run(user) as stop:
                for step in follow(self.pool, scenes, picture_request, stop):
                    if step.stopped and not self._runs.is_latest(user, stop):
                        return  # another run of the same user shows its progress now
                    if step.result is not None and recording and not sample:
                        state[OWN_RECORDING] = self._stored(recording)
                    yield self._result_value(step, user, state), status_html(step), *run_buttons(not _is_finished(step))
        except Exception:
            yield gr.skip(), "", *run_buttons(False)
            raise

    def _stored(self, recording: str) -> str:
        """Returns the key of a recording for links; warns and returns an empty text if it cannot be stored."""
        try:
            return self.own_recordings.keep(recording)
        except NoRoom as error:
            gr.Warning(text(error))
            return ""

    def _changed(self, values: Sequence[Any]) -> dict[OptionField, Any]:
        """Returns the options of the models that the user has changed."""
        values_by_key = read_inputs(self.model_options, values)
        return {
            each: values_by_key[each.key] for each in self.model_options if values_by_key[each.key] != each.spec.default
        }

    def _state(self, request: Request, changed_options: Mapping[OptionField, Any]) -> dict[str, str]:
        """Returns the state of a link to a request, without default values; `changed_options` are of the models."""
        cells = [offer.cell.value for offer in request.offers]
        defaults = ViewOptions()
        view_values = {name: getattr(request.options, name) for name in request.view.options}
        changed_values = {name: value for name, value in view_values.items() if value != getattr(defaults, name)}
        changed_values |= {each.key: value for each, value in changed_options.items()}
        texts = {
            name: "\n".join(value) if isinstance(value, tuple) else str(value) for name, value in changed_values.items()
        }
        return {
            FIRST_MODEL: cells[0],
            SECOND_MODEL: cells[1] if len(cells) > 1 else NOTHING,
            VIEW: request.view.name,
            **texts,
        }

    def _result_value(self, step: Step, user: str, state: Mapping[str, str]) -> Any:
        """Returns what the scripts draw at the end of a run, and keeps its pictures."""
        if step.result is None:
            return gr.skip()
        picture_set = step.result
        *old_keys, previous_key = self._keys.get(user) or ("",)
        for key in old_keys:
            self._picture_sets.drop(key)
        self._keys.put(user, (previous_key, picture_set.key))
        self._picture_sets.put(picture_set.key, picture_set)
        return {
            "key": picture_set.key,
            "sound": picture_set.scenes[0].recording is not None,
            "settings": state,
            "at": time.time(),
        }

    def cancel(self, request: gr.Request) -> Update:
        """Stops the user's run; the pictures that are there stay."""
        self._runs.stop(str(request.session_hash))
        return gr.update(interactive=False)

    def leave(self, request: gr.Request) -> None:
        """Stops the run of a user who closed the page, and forgets the pictures."""
        user = str(request.session_hash)
        self._runs.stop(user)
        self._forms.drop(user)
        for key in self._keys.get(user) or ():
            self._picture_sets.drop(key)
        self._keys.drop(user)
        self._scenes.drop(user)


def _is_finished(step: Step) -> bool:
    return step.stopped or step.result is not None


def _matters(option: OptionField) -> bool:
    """Returns whether an option of models changes what a model computes from a whole recording."""
    return option.spec.name not in UNOFFERED_OPTIONS and option.spec not in BEAM_SEARCH


def _has_option(option: OptionField, request: Request) -> bool:
    """Returns whether a model of a request has an option."""
    return any(offer.card.family in option.families for offer in request.offers)


def _choices(choices: Sequence[tuple[str, str]], model: str | None, compared_model: str) -> tuple[Update, Update]:
    """Returns updates of the two inputs for models: what can be chosen, and what is."""
    return gr.update(choices=choices, value=model), gr.update(
        choices=[("nothing", NOTHING), *choices], value=compared_model
    )


def _linked(updates: Sequence[Update], options: Sequence[OptionField], state: Mapping[str, str]) -> list[Update]:
    """Returns the updates of options' inputs with the values that a link names."""
    return [
        {**update, "value": _in_link(each, state.get(each.key))} for update, each in zip(updates, options, strict=True)
    ]


def _in_link(option: OptionField, link_text: str | None) -> Any:
    """Returns an input's value for an option in a link; the default value if the link does not have the option."""
    default, kind = option.spec.default, option.spec.kind
    if link_text is None:
        return "\n".join(default) if isinstance(default, tuple) else "" if default is None else default
    if kind is bool:
        return link_text == str(True)
    choices = [str(each) for each in option.spec.choices or ()]
    if choices and kind is str and link_text not in choices:
        raise BadInput(f"the link says {option.label} {link_text!r:.40}; expected one of {', '.join(choices)}")
    if kind in (int, float) and default is not None:
        try:
            return kind(link_text)
        except ValueError:
            expected = "a whole number" if kind is int else "a number"
            raise BadInput(f"the link says {option.label} {link_text!r:.40}; expected {expected}") from None
    return link_text
