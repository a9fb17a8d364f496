"""Makes pictures: of one model, of two side by side, and of their difference."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.audio.check import check_sound
from workbench.core.errors import BadInput
from workbench.core.options import build_options, option_specs
from workbench.core.progress import OnProgress
from workbench.core.settings import SETTINGS
from workbench.families import FAMILIES
from workbench.prepared.pool import prepared_processes
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.session.values import PROMPT, RECORDING
from workbench.visualise.comparison import side_by_side
from workbench.visualise.options import ViewOptions
from workbench.visualise.picture import Picture
from workbench.visualise.scene import Scene
from workbench.visualise.sides import changes_of, name_of, read_other
from workbench.visualise.views import View, find_view

DEFAULT = ViewOptions()
VIEW_OPTIONS = {spec.name: spec for spec in option_specs(ViewOptions)}


def visualise(
    audio: Any,
    model: str | Path = "demo/sensevoice",
    runtime: str | None = None,
    view: str = "waveform",
    *,
    against: str | None = None,
    registry: Registry | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Picture:
    """Returns a picture of what a model does with a recording.

    Args:
        audio: a recording; for a language model, a prompt; for a model that answers speech, any of its inputs.
        model: a card's id, a checkpoint directory or a GGUF file.
        runtime: pytorch, gguf or vllm; by default the model's own.
        view: a name in `workbench.visualise.views.VIEWS`.
        against: a second side for a picture of both and of their difference, in the notation of
            `workbench.visualise.sides`: another runtime, type of weights or model.
        registry: opens the sessions, which stay there for other calls; by default one that is closed at the end.
        on_progress: called with the progress of a download, a conversion and the load.
        options: of the view (`ViewOptions`), of the session (`quantization`, `threads`) and of the model (`language`).

    Raises `BadInput` for an unknown view or option, and for a view that the model does not have.
    """
    selected_view = find_view(view)
    view_options, settings, model_options = split_options(selected_view, options)
    two_sessions = prepared_processes(early=False) if against is not None else nullcontext()
    with two_sessions, _registry(registry) as models:
        card = models.card(model)
        if FAMILIES[card.family].input == RECORDING and isinstance(audio, (str, Path)):
            check_sound(audio)  # before a model is loaded
        check_view(selected_view, card, runtime or models.default_runtime(card))
        second_model = read_other(models, against, card) if against is not None else None
        if second_model is not None:
            second_card, side = second_model
            _check_inputs(card, second_card)
            check_view(selected_view, second_card, side.runtime or models.default_runtime(second_card))
        with models.open(model, runtime, on_progress=on_progress, options=model_options, **settings) as session:
            own_settings = {name: value for name, value in settings.items() if name != "quantization"}
            scene = Scene(session, card, audio, model_options, models, own_settings, changes_of(settings))
            if second_model is None:
                return picture_of(scene, selected_view, view_options)
            second_options = {**(model_options if second_card.family == card.family else {}), **side.options}
            opening = models.open(
                second_card,
                side.runtime,
                on_progress=on_progress,
                options=second_options,
                **{**_shared_settings(settings), **side.settings},
            )
            with opening as second_session:
                changes = changes_of(side.settings, side.options)
                second_scene = Scene(second_session, second_card, audio, second_options, models, changes=changes)
                picture = compared_pictures(scene, second_scene, selected_view, view_options)
                return replace(picture, code=code_of(scene, selected_view, view_options, against))


def _check_inputs(first: Card, second: Card) -> None:
    """Raises `BadInput` if no input suits both models: one hears a recording, and the other continues a text."""
    inputs = [FAMILIES[card.family].input for card in (first, second)]
    if set(inputs) == {RECORDING, PROMPT}:
        takes = ["a recording" if each == RECORDING else "a text" for each in inputs]
        raise BadInput(
            f"{first.id} takes {takes[0]} and {second.id} {takes[1]}; expected two models that take the same input"
        )


def _shared_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of one side that the other side shares, unless the other side sets them itself."""
    return {name: value for name, value in settings.items() if name in ("threads",)}


def compared_pictures(first: Scene, second: Scene, view: View | str, options: ViewOptions = DEFAULT) -> Picture:
    """Returns a picture of two scenes side by side, with their difference, and the view's layers for both together.

    Raises `BadInput` for a view that one of the models does not have.
    """
    view = find_view(view) if isinstance(view, str) else view
    picture = side_by_side(picture_of(first, view, options), picture_of(second, view, options))
    if view.between is not None:
        shared = view.between(first, second, options)
        picture = replace(picture, layers=(*shared.layers, *picture.layers), notes=(*picture.notes, *shared.notes))
    return replace(picture, code=code_of(first, view, options, name_of(second)))


class _registry:
    """Yields the given registry, which stays open, or a new registry, which is closed at the end."""

    def __init__(self, registry: Registry | None):
        self._own = registry is None
        self._registry = registry or Registry()

    def __enter__(self) -> Registry:
        return self._registry

    def __exit__(self, *_: object) -> None:
        if self._own:
            self._registry.close()


def split_options(view: View, options: Mapping[str, Any]) -> tuple[ViewOptions, dict[str, Any], dict[str, Any]]:
    """Returns the options of a view, the settings of a session and the options of a model among some options.

    Options that are None count as not given. Raises `BadInput` for an option that the view does not use.
    """
    set_options = {name: value for name, value in options.items() if value is not None}
    of_views = {name: value for name, value in set_options.items() if name in VIEW_OPTIONS}
    for name in of_views:
        if name not in view.options:
            expected = f"it has {', '.join(view.options)}" if view.options else "it has none"
            raise BadInput(f"the view {view.name} has no option {name:.80}; {expected}")
    settings = {name: value for name, value in set_options.items() if name in SETTINGS}
    model_options = {
        name: value for name, value in set_options.items() if name not in VIEW_OPTIONS and name not in SETTINGS
    }
    return build_options(ViewOptions, of_views, f"the view {view.name}"), settings, model_options


def check_view(view: View, card: Card, runtime: str) -> None:
    """Raises `BadInput`, which says why, if the model does not have the view on the runtime."""
    if reason := view.why_not(FAMILIES[card.family], runtime):
        raise BadInput(f"{card.id} on {runtime} has no view {view.name}: {reason}")


def picture_of(scene: Scene, view: View | str, options: ViewOptions = DEFAULT) -> Picture:
    """Returns a picture of a scene. A second picture of the same scene reuses what was computed for the first.

    Raises `BadInput` for a view that the model does not have.
    """
    view = find_view(view) if isinstance(view, str) else view
    session = scene.session
    check_view(view, scene.card, session.runtime)
    content = view.build(scene, options)
    return Picture(
        view=view.name,
        model=session.model,
        runtime=session.runtime,
        title=content.title,
        sentence=view.sentence,
        layers=content.layers,
        seconds=scene.seconds,
        tokens=content.tokens,
        notes=(*content.notes, *filter(None, [scene.overflow])),
        code=code_of(scene, view, options),
        quantization=session.quantization,
        changes=scene.changes,
    )


def code_of(scene: Scene, view: View, options: ViewOptions, against: str | None = None) -> str:
    """Returns the Python code that makes a picture again. A variable stands for a recording that is not a file."""
    is_literal = isinstance(scene.written, (str, Path, list))
    arguments: dict[str, Any] = {"model": scene.session.model, "runtime": scene.session.runtime}
    if scene.session.quantization:
        arguments["quantization"] = scene.session.quantization
    arguments |= scene.settings
    arguments["view"] = view.name
    arguments |= {
        name: getattr(options, name) for name in view.options if getattr(options, name) != getattr(DEFAULT, name)
    }
    arguments |= {"against": against} if against is not None else {}
    arguments |= scene.options
    source = (
        repr(str(scene.written) if isinstance(scene.written, Path) else scene.written)
        if is_literal
        else "(samples, rate)"
    )
    code = ", ".join([source, *(f"{name}={value!r}" for name, value in arguments.items())])
    return f"import workbench\n\npicture = workbench.visualise({code})\npicture.save({view.name + '.svg'!r})\n"
