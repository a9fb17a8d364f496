"""The endpoint `/visualise` for `gradio_client` and notebooks: pictures as files, with what is in them.

It makes the same pictures as the Visualise tab and `workbench visualise`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gradio as gr
from gradio.data_classes import FileData
from gradio.processing_utils import save_bytes_to_cache
from gradio.utils import get_upload_folder

from panels.running.choices import ModelOnRuntime, check_options_known
from panels.running.parameters import FILE, OBJECT, OBJECTS_SCHEMA, TEXT, UPLOAD, Parameter, endpoint
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING
from panels.transcribe.endpoint import first_of, sample
from panels.visualise.routes import FILES
from panels.visualise.run import PictureSet, Scenes, compute, request_of
from workbench.core.errors import BadInput
from workbench.core.options import option_specs
from workbench.core.runtimes import RUNTIMES
from workbench.core.visitors import current_stop
from workbench.visualise.options import ViewOptions

OPTIONS = tuple(spec.name for spec in option_specs(ViewOptions))
VISUALISE = {
    "audio": Parameter("recording", f"A recording, as a file: {UPLOAD}. Nothing for a model that reads text.", FILE),
    "model": Parameter(
        "model",
        "The id of a model; it may name its runtime and a quantisation too, as in demo/sensevoice|gguf|q8_0.",
        TEXT,
    ),
    "view": Parameter("view", "The name of a view, such as filterbank, ctc or attention.", TEXT),
    "runtime": Parameter("runtime", f"The runtime of a model that names none: {', '.join(RUNTIMES)}.", TEXT, "pytorch"),
    "beside": Parameter(
        "beside",
        "A second model, in the same form; the result then has its picture and the difference of the two too.",
        TEXT,
        "",
    ),
    "options": Parameter(
        "options",
        f'Options of the view, an object such as {{"layer": 3}}, or JSON text of one: {", ".join(OPTIONS)}; it may '
        "also have options of the models.",
        OBJECT,
        {},
    ),
    "text": Parameter(
        "text", "The message to a model that answers conversations, or the prompt of a language model.", TEXT, ""
    ),
    "format": Parameter("format", f"The format of the files: {', '.join(FILES)}.", TEXT, "npz"),
}


def build(page: Page, pool: SessionPool) -> None:
    """Adds the endpoint to the page, in the current context."""

    def visualise(
        audio: str | None,
        model: str,
        view: str,
        runtime: str,
        beside: str,
        options: dict[str, Any],
        text: str,
        format: str,
    ) -> list[dict[str, Any]]:
        return pictures(pool, audio, model, view, runtime, beside, options, text, format)

    with gr.Column(visible=False):
        endpoint(
            page,
            visualise,
            VISUALISE,
            "pictures",
            OBJECTS_SCHEMA,
            "visualise",
            "Shows what a model does with a recording; gives one object for each picture, with its file.",
            {"audio": sample(), "model": first_of(pool.registry, "transcribe"), "view": "filterbank"},
            **COMPUTING,
        )


def pictures(
    pool: SessionPool,
    audio: str | None,
    model: str,
    view: str,
    runtime: str = "pytorch",
    beside: str = "",
    options: Mapping[str, Any] | None = None,
    text: str = "",
    format: str = "npz",
) -> list[dict[str, Any]]:
    """Returns a JSON object for each picture: of the model, of the one beside it, of both, and of their difference.

    Each has `side`, `view`, `title`, `seconds`, `tokens` (`text`, `start`, `end`), `layers` (`name`, `kind`, `title`,
    `shape`, `x`, `y`), `notes`, `code` (the Python that makes it again; empty for both and for their difference), and
    `file`. Raises `BadInput` for a view that a model does not have.
    """
    from workbench.visualise.rendering import render

    if format not in FILES:
        raise BadInput(f"format is {format!r:.40}; expected one of {', '.join(FILES)}")
    cells = [each if "|" in each or not each else ModelOnRuntime(each, runtime).value for each in (model, beside)]
    model_options = dict(options or {})
    view_options = {name: model_options.pop(name) for name in OPTIONS if name in model_options}
    request = request_of(pool.registry, cells, audio, text, view, view_options, model_options)
    check_options_known(pool.registry, [offer.card.id for offer in request.offers], model_options)
    picture_set = compute(pool, Scenes(), request, current_stop(), lambda _: None)
    return [
        _object(picture_set, place, render(picture_set.pictures[place], format), format)
        for place in range(len(picture_set.pictures))
    ]


def _object(picture_set: PictureSet, place: int, content: bytes, format: str) -> dict[str, Any]:
    from panels.visualise.parcel import file_names

    picture = picture_set.pictures[place]
    name = file_names(picture_set.pictures, picture_set.titles)[place]
    return {
        "side": picture_set.titles[place],
        "view": picture.view,
        "title": picture.title,
        "seconds": picture.seconds,
        "tokens": [{"text": each.text, "start": each.start, "end": each.end} for each in picture.tokens],
        "layers": [
            {
                "name": each.name,
                "kind": each.kind,
                "title": each.title,
                "shape": list(each.values.shape),
                "x": each.x.label,
                "y": each.y.label,
            }
            for each in picture.layers
        ],
        "notes": list(picture.notes),
        "code": picture.code,
        "file": _file(content, f"{name}.{format}", FILES[format]),
    }


def _file(content: bytes, name: str, kind: str) -> dict[str, Any]:
    path = save_bytes_to_cache(content, name, get_upload_folder())
    return dict(json.loads(FileData(path=path, orig_name=name, mime_type=kind).model_dump_json()))
