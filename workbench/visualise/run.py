"""Makes pictures: of one model, of two side by side, and of their difference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.options import build_options, option_specs
from workbench.core.progress import OnProgress
from workbench.core.settings import SETTINGS
from workbench.registry.registry import Registry
from workbench.visualise.options import ViewOptions
from workbench.visualise.picture import Picture
from workbench.visualise.scene import Scene
from workbench.visualise.views import View, find_view

DEFAULT = ViewOptions()
VIEW_OPTIONS = {spec.name: spec for spec in option_specs(ViewOptions)}


def visualise(
    audio: Any,
    model: str | Path = "demo/sensevoice",
    runtime: str | None = None,
    view: str = "waveform",
    *,
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
        registry: opens the session, which stays there for other calls; by default one that is closed at the end.
        on_progress: told of a download, a conversion and the load.
        options: of the view (`ViewOptions`), of the session (`quantization`, `threads`) and of the model (`language`).

    Raises `BadInput` for an unknown view or option, and for a view that the model does not have.
    """
    chosen, settings, own = split_options(find_view(view), options)
    with _registry(registry) as held:
        card = held.card(model)
        with held.open(model, runtime, on_progress=on_progress, options=own, **settings) as session:
            return picture_of(Scene(session, card, audio, own, held), find_view(view), chosen)


class _registry:
    """The registry that was given, which stays open; or one that is closed at the end."""

    def __init__(self, given: Registry | None):
        self._own = given is None
        self._registry = given or Registry()

    def __enter__(self) -> Registry:
        return self._registry

    def __exit__(self, *_: object) -> None:
        if self._own:
            self._registry.close()


def split_options(view: View, options: Mapping[str, Any]) -> tuple[ViewOptions, dict[str, Any], dict[str, Any]]:
    """Returns the options of a view, the settings of a session and the options of a model among some options.

    Options that are None count as not given. Raises `BadInput` for an option that the view does not use.
    """
    given = {name: value for name, value in options.items() if value is not None}
    of_views = {name: value for name, value in given.items() if name in VIEW_OPTIONS}
    for name in of_views:
        if name not in view.options:
            known = f"it has {', '.join(view.options)}" if view.options else "it has none"
            raise BadInput(f"the view {view.name} has no option {name}; {known}")
    settings = {name: value for name, value in given.items() if name in SETTINGS}
    own = {name: value for name, value in given.items() if name not in VIEW_OPTIONS and name not in SETTINGS}
    return build_options(ViewOptions, of_views, f"the view {view.name}"), settings, own


def picture_of(scene: Scene, view: View | str, options: ViewOptions = DEFAULT) -> Picture:
    """Returns a picture of a scene. A second picture of the same scene reuses what was computed for the first.

    Raises `BadInput` for a view that the model does not have.
    """
    view = find_view(view) if isinstance(view, str) else view
    session = scene.session
    if reason := view.why_not(scene.family, session.runtime):
        raise BadInput(f"{session.model} on {session.runtime} has no view {view.name}: {reason}")
    drawn = view.build(scene, options)
    return Picture(
        view=view.name,
        model=session.model,
        runtime=session.runtime,
        title=drawn.title,
        sentence=view.sentence,
        layers=drawn.layers,
        seconds=scene.seconds,
        tokens=drawn.tokens,
        notes=drawn.notes,
        code=code_of(scene, view, options),
        quantization=session.quantization,
    )


def code_of(scene: Scene, view: View, options: ViewOptions) -> str:
    """Returns the Python that makes a picture again. A recording that is no file has a name of its own there."""
    named = isinstance(scene.source, (str, Path, list))
    given: dict[str, Any] = {"model": scene.session.model, "runtime": scene.session.runtime}
    if scene.session.quantization:
        given["quantization"] = scene.session.quantization
    given["view"] = view.name
    given |= {name: getattr(options, name) for name in view.options if getattr(options, name) != getattr(DEFAULT, name)}
    given |= scene.options
    source = repr(str(scene.source) if isinstance(scene.source, Path) else scene.source) if named else "(samples, rate)"
    arguments = ", ".join([source, *(f"{name}={value!r}" for name, value in given.items())])
    return f"import workbench\n\npicture = workbench.visualise({arguments})\npicture.save({view.name + '.svg'!r})\n"
