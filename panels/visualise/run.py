"""Makes the pictures of a request in a thread and reports its progress; keeps what each user looks at.

The values computed from a recording stay with the user, so another view of it computes only new values. This file knows
neither Gradio nor HTML.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panels.parity.request import source_of
from panels.running.choices import RuntimeOffer, chosen_offers, offers, options_for
from panels.running.progress import changes
from panels.running.sessions import SessionPool
from workbench.audio.check import check_sound
from workbench.core.errors import BadInput, Cancelled
from workbench.core.options import build_options
from workbench.core.progress import listening
from workbench.families import FAMILIES
from workbench.registry.registry import Registry
from workbench.serving.work import follower, opened
from workbench.session.values import CONVERSATION, PROMPT, RECORDING
from workbench.visualise.options import ViewOptions

if TYPE_CHECKING:
    from workbench.visualise.picture import Picture
    from workbench.visualise.scene import Scene
    from workbench.visualise.view_content import ViewContent
    from workbench.visualise.views import View

TASKS = ("transcribe", "converse", "generate")
DIFFERENCE, BOTH = "Difference", "Both"  # titles of what stands after the two sides
MAX_SCENES = 4  # pairs of recording and model whose values are kept for one user
SAMPLES = "assets/samples"  # the folder of the samples in this repository
MISSING = {
    RECORDING: "there is no recording; add a file, record one, or click a sample",
    PROMPT: "there is no text; write one",
    CONVERSATION: "there is no text and no recording; add one of them, or both",
}


@dataclass(frozen=True)
class Request:
    """What to look at, checked as far as possible without reading a recording or loading a model."""

    offers: tuple[RuntimeOffer, ...]  # one, or two side by side
    sources: tuple[Any, ...]  # the input of each
    view: View
    options: ViewOptions
    model_options: tuple[Mapping[str, Any], ...]  # the options of each model
    written: tuple[Any, ...]  # the input of each as the Python of a picture writes it, without paths of the server


@dataclass(frozen=True, eq=False)
class PictureSet:
    """The pictures that a user looks at."""

    key: str  # nobody can guess it; whoever has it may read the pictures
    pictures: tuple[Picture, ...]
    titles: tuple[str, ...]
    scenes: tuple[Scene, ...]
    seconds: float  # how long the pictures took


def traceable_offers(registry: Registry) -> tuple[RuntimeOffer, ...]:
    """Returns every model on this machine whose stages can be seen, on every runtime in every quantisation."""
    offers_by_cell = {each.cell: each for task in TASKS for each in offers(registry, task)}
    return tuple(each for each in offers_by_cell.values() if not each.elsewhere and each.card.family in FAMILIES)


def request_of(
    registry: Registry,
    cells: Sequence[str],
    recording: str | None,
    text: str | None,
    view: str,
    options: Mapping[str, Any],
    model_options: Mapping[str, Any] | None = None,
    of_family: Mapping[str, Mapping[str, Any]] | None = None,
    sample: str | None = None,
) -> Request:
    """Returns the request that a user described.

    Args:
        cells: one or two models on runtimes, as `ModelOnRuntime.value`.
        options: options of the view, by name; those that the view does not use are left out.
        model_options: options of the models; each gets those that it has.
        of_family: options of the models by family, for options that differ between families.
        sample: the name of the sample that is the recording; the Python of a picture names a user's own by its name.

    Raises `BadInput` that says what is wrong.
    """
    from workbench.visualise.views import find_view

    chosen = chosen_offers([each for each in cells if each], traceable_offers(registry))
    if len([each for each in cells if each]) > len(chosen):
        raise BadInput(
            f"both sides are {chosen[0].title}; choose another model, runtime or quantisation to compare with"
        )
    requested_view = find_view(view)
    sources, written = [], []
    name = recording and (f"{SAMPLES}/{sample}" if sample else Path(recording).name)
    for offer in chosen:
        family = FAMILIES[offer.card.family]
        if reason := requested_view.why_not(family, offer.cell.runtime):
            raise BadInput(f"{offer.title} has no view {requested_view.label}: {reason}")
        source = source_of(family, recording, text)
        if not source:
            raise BadInput(MISSING[family.input])
        sources.append(source)
        written.append(source_of(family, name, text))
    view_options = {name: value for name, value in options.items() if name in requested_view.options}
    checked_view_options = build_options(ViewOptions, view_options, f"the view {requested_view.label}")
    options_by_offer = [{**(model_options or {}), **(of_family or {}).get(offer.card.family, {})} for offer in chosen]
    checked = [options_for(registry, offer.card.id, each) for offer, each in zip(chosen, options_by_offer, strict=True)]
    return Request(chosen, tuple(sources), requested_view, checked_view_options, tuple(checked), tuple(written))


class Scenes:
    """What was computed for one user, by model and recording; the least recently used goes first."""

    def __init__(self) -> None:
        self._scenes: OrderedDict[str, Scene] = OrderedDict()

    def scene(self, key: str, make: Callable[[], Scene]) -> Scene:
        """Returns the scene with that key; makes it if it is not stored."""
        stored_scene = self._scenes.pop(key, None) or make()
        self._scenes[key] = stored_scene
        while len(self._scenes) > MAX_SCENES:
            self._scenes.popitem(last=False)
        return stored_scene


@dataclass(frozen=True)
class Step:
    """The progress of a request."""

    activity: str = "starting"
    seconds: float = 0.0
    stopped: bool = False
    result: PictureSet | None = None  # set when it is finished


def follow(pool: SessionPool, scenes: Scenes, request: Request, stop: threading.Event) -> Iterator[Step]:
    """Makes the pictures in a thread; yields its progress several times a second, and last the result.

    Setting `stop` ends it at its next check. Raises the same errors as `workbench.visualise`.
    """
    start = time.perf_counter()
    latest_reports: list[Any] = ["starting"]

    def work(report: Callable[[Any], None]) -> None:
        try:
            report(compute(pool, scenes, request, stop, report))
        except BaseException as error:  # raised again in the thread that follows the run
            report(error)

    def receive(result: Any) -> None:
        latest_reports[0] = result

    try:
        yield Step()
        for _ in changes(work, receive, stop):
            yield Step(str(latest_reports[0]), time.perf_counter() - start)
    finally:
        was_stopped = stop.is_set()
        stop.set()  # a closed iterator ends the work
    result = latest_reports[0]
    if isinstance(result, PictureSet):
        yield Step("done", time.perf_counter() - start, result=result)
    elif was_stopped or isinstance(result, Cancelled):
        yield Step("stopped", time.perf_counter() - start, stopped=True)
    else:
        raise result


def compute(
    pool: SessionPool,
    scenes: Scenes,
    request: Request,
    stop: threading.Event,
    on_activity: Callable[[str], None],
) -> PictureSet:
    """Returns the pictures of a request: of each side, and of the difference of two."""
    from workbench.visualise.run import picture_of
    from workbench.visualise.scene import Scene

    start = time.perf_counter()
    for offer, source in zip(request.offers, request.sources, strict=True):
        if FAMILIES[offer.card.family].input == RECORDING:
            check_sound(source)  # before a model is loaded
    pictures, used_scenes = [], []
    sides = zip(request.offers, request.sources, request.model_options, request.written, strict=True)
    for offer, source, model_options, written in sides:
        session = opened(pool, offer.cell, stop, on_activity)
        key = json.dumps([offer.cell.value, source, model_options], default=str)
        opening = partial(Scene, session, offer.card, source, model_options, pool.registry, written=written)
        scene = scenes.scene(key, opening)
        on_activity(f"computing {offer.title}")
        with listening(follower(stop, on_activity)):
            pictures.append(picture_of(scene, request.view, request.options))
        used_scenes.append(scene)
    titles = [offer.title for offer in request.offers]
    if len(pictures) == 2:
        if request.view.between is not None:
            add_together(pictures, titles, request.view.between(used_scenes[0], used_scenes[1], request.options))
        add_difference(pictures, titles)
    seconds = time.perf_counter() - start
    return PictureSet(secrets.token_urlsafe(16), tuple(pictures), tuple(titles), tuple(used_scenes), seconds)


def add_together(pictures: list[Picture], titles: list[str], content: ViewContent) -> None:
    """Adds what a view draws of two models at once, under a title of its own: it is not a difference."""
    first, second = pictures[:2]
    title = f"{content.title}: {first.side} and {second.side}"
    pictures.append(replace(first, title=title, layers=content.layers, notes=content.notes, code=""))
    titles.append(BOTH)


def add_difference(pictures: list[Picture], titles: list[str]) -> None:
    """Adds the difference of the first two pictures; where it has no meaning, a note at the second says why."""
    from workbench.visualise.comparison import difference

    first, second = pictures[:2]
    try:
        picture_difference = difference(first, second)
    except BadInput as error:
        pictures[1] = replace(second, notes=(*second.notes, str(error)))
        return
    title = f"{second.side} minus {first.side}"
    pictures.append(
        replace(first, title=title, layers=picture_difference.layers, notes=picture_difference.notes, code="")
    )
    titles.append(DIFFERENCE)
