"""The addresses of the Visualise tab: arrays of pictures, the recording's samples, files, scripts.

A picture is found by a key that only its user has. All errors are `{"error": sentence}`. This file computes nothing
itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from panels.running.answers import answered
from panels.visualise.run import PictureSet
from workbench.core.errors import BadInput

BYTES = "application/octet-stream"
FILES = {"png": "image/png", "svg": "image/svg+xml", "npz": "application/zip"}
MAX_SENT = 1 << 16  # bytes of a request's body, which should be empty

Find = Callable[[str], PictureSet]


def visualise_routes(find: Find) -> list[BaseRoute]:
    """Returns the routes of the tab; `find` returns the pictures of a key."""
    work = {"picture/{key}": _picture, "sound/{key}": _sound, "file/{key}/{place:int}.{kind}": _file}
    return [
        Route(f"/visualise/{path}", partial(answered, partial(each, find), MAX_SENT), methods=["GET"])
        for path, each in work.items()
    ]


def _picture(find: Find, body: bytes, request: Request) -> Response:
    from panels.visualise.parcel import parcel

    picture_set = find(request.path_params["key"])
    return Response(parcel(picture_set.pictures, picture_set.titles), media_type=BYTES)


def _sound(find: Find, body: bytes, request: Request) -> Response:
    """Returns the sample rate as uint32 and the samples as int16."""
    from workbench.audio.read import samples_to_int16

    recording = find(request.path_params["key"]).scenes[0].recording
    if recording is None:
        raise BadInput("these pictures are of a text, and there is no recording")
    samples = samples_to_int16(recording.samples).astype("<i2")
    return Response(struct.pack("<I", recording.sample_rate) + samples.tobytes(), media_type=BYTES)


def _file(find: Find, body: bytes, request: Request) -> Response:
    from workbench.visualise.rendering import render

    kind, place = request.path_params["kind"], request.path_params["place"]
    picture_set = find(request.path_params["key"])
    if kind not in FILES or place >= len(picture_set.pictures):
        raise BadInput(f"there is no file {place}.{kind:.20} of these pictures; expected png, svg or npz")
    return Response(render(picture_set.pictures[place], kind), media_type=FILES[kind])
