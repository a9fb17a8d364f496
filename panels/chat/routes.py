"""The addresses of the Chat tab beside its websocket: what it offers, recordings, replay bundles, scripts.

All errors are `{"error": sentence}`. This file computes nothing itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import PurePath

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from panels.chat.catalogue import catalogue
from panels.chat.live import live
from panels.chat.wire import pack, unpack
from panels.running.answers import answered
from panels.running.sessions import SessionPool
from panels.running.wiring import RUNS_AT_ONCE
from panels.widgets.samples import read_samples
from workbench import __version__
from workbench.audio.read import read, samples_to_int16
from workbench.core.errors import BadInput
from workbench.speech.replay import MAX_FILE_BYTES, Sound, read_bundle, write_bundle
from workbench.system.tempdirs import tempdir
from workbench.system.versions import versions

LARGEST_BODY = 2 * MAX_FILE_BYTES  # bytes; a conversation with its sounds before it is packed
ZIP = "application/zip"


def chat_routes(pool: SessionPool) -> list[BaseRoute]:
    """Returns the routes of the tab."""

    slots = threading.BoundedSemaphore(RUNS_AT_ONCE)

    async def answer_live(socket: WebSocket) -> None:
        await live(pool, slots, socket)

    return [
        WebSocketRoute("/chat/live", answer_live),
        Route("/chat/offer", partial(answered, partial(_offer, pool), LARGEST_BODY), methods=["GET"]),
        *(
            Route(
                f"/chat/{name}",
                partial(answered, partial(_judged, work), LARGEST_BODY, guard=pool.guard),
                methods=["POST"],
            )
            for name, work in (("sound", _sound), ("bundle", _bundle), ("open", _open))
        ),
    ]


def _judged(work: Callable[[bytes, Request], Response], body: bytes, request: Request) -> Response:
    """Answers a request that has a file. A bad file gets status 200 too: browsers log other statuses as errors."""
    try:
        return work(body, request)
    except BadInput as error:
        return JSONResponse({"error": str(error)})


def _offer(pool: SessionPool, body: bytes, request: Request) -> Response:
    return JSONResponse(catalogue(pool.registry, read_samples(), pool.guard))


def _sound(body: bytes, request: Request) -> Response:
    """Returns a recording as 16 kHz mono samples of 16 bits, in a parcel with its name, length and notes."""
    name = PurePath(request.query_params.get("name") or "recording").name[-80:]
    if not body:
        raise BadInput(f"{name} is empty; expected a recording")
    ending = "".join(letter for letter in PurePath(name).suffix[1:9] if letter.isascii() and letter.isalnum())
    with tempdir() as folder:
        path = folder / f"recording.{ending or 'wav'}"
        path.write_bytes(body)
        try:
            recording = read(path)
        except BadInput as error:
            raise BadInput(str(error).replace(path.name, name)) from error
    sound = Sound(samples_to_int16(recording.samples), recording.sample_rate)
    header = {"name": name, "seconds": round(recording.seconds, 3), "notes": list(recording.notes)}
    return Response(pack(header, [sound]), media_type="application/octet-stream")


def _bundle(body: bytes, request: Request) -> Response:
    chat, sounds = unpack(body)
    content = write_bundle(chat, sounds, {"speech-workbench": __version__, **versions()})
    if len(content) > MAX_FILE_BYTES:
        raise BadInput(f"the conversation has more than {MAX_FILE_BYTES >> 20} MB; save a shorter one")
    return Response(content, media_type=ZIP)


def _open(body: bytes, request: Request) -> Response:
    return Response(pack(*read_bundle(body)), media_type="application/octet-stream")
