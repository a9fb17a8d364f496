"""The live microphone of the Transcribe tab: the place where its scripts draw it, and its files.

The scripts in assets/live talk to the websocket of `workbench.serving.streaming.live`. The server stores no speech
and no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gradio as gr
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from panels.running.answers import answered
from panels.running.choices import ModelOnRuntime
from panels.widgets.html_block import scripted_html
from workbench.core.errors import BadInput
from workbench.serving.routes.bodies import parsed
from workbench.session.values import Segment, Transcript
from workbench.text.exports import find_format
from workbench.text.scripts import join_texts

LOADING = '<div class="live"><p class="muted small" role="status">Opening the live microphone</p></div>'
LARGEST_BODY = 16 << 20  # bytes; days of speech
MAX_SEGMENTS = 200_000
MAX_SECONDS = 1e9  # of a recording, and of a time in it


def live_microphone() -> gr.HTML:
    """Returns the component, at the current position of the page."""
    return scripted_html("live/start.js", LOADING, elem_id="live")


def live_files() -> list[BaseRoute]:
    """Returns the route that sends what was said as a file."""
    return [
        Route("/live/export", partial(answered, _export, LARGEST_BODY), methods=["POST"]),
    ]


def _export(body: bytes, request: Request) -> Response:
    """Returns a file of the format in the address, made from the segments and the texts that the page sends."""
    writer = find_format(request.query_params.get("format", ""))
    try:
        fields = parsed(body)
        segments = tuple(_segment(each) for each in fields["segments"][:MAX_SEGMENTS])
        text = join_texts([str(each) for each in fields["text"]])
        cell = ModelOnRuntime.parse(str(fields["model"]))
        seconds = _seconds(fields["seconds"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput("the page sent no transcript; reload it") from error
    transcript = Transcript(
        cell.model,
        cell.runtime,
        text,
        None,
        segments,
        (),
        seconds,
        0.0,
        0.0,
        quantization=cell.quantization or None,
    )
    return Response(writer.write(transcript).encode(writer.encoding), media_type=writer.media_type)


def _segment(fields: Mapping[str, Any]) -> Segment:
    return Segment(_seconds(fields["start"]), _seconds(fields["end"]), str(fields["text"]))


def _seconds(value: Any) -> float:
    """Returns a time in seconds; raises `ValueError` for one that no recording has."""
    seconds = float(value)
    if not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"{seconds:g} s is no time of a recording")
    return seconds
