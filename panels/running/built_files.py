"""Serves the scripts, styles and fonts of Gradio's page in place of Gradio's own route.

Gradio reads and compresses each of a page's hundred files for every visitor, and no browser keeps them. The name of a
file contains a digest of its content, so the file never changes. This module compresses it once, and browsers keep it.
"""

from __future__ import annotations

import asyncio
import functools
import mimetypes
from pathlib import Path

import brotli
from gradio.routes import BUILD_PATH_LIB
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TEXT = (".js", ".css", ".svg")  # fonts are compressed already
CACHED = {"Cache-Control": "public, max-age=31536000, immutable"}
COMPRESSED = {"Content-Encoding": "br", "Vary": "Accept-Encoding"}


def built_files_route() -> Route:
    """Returns the route of the files that every page of Gradio loads."""
    return Route("/assets/{name}", _built_file, methods=["GET", "HEAD"])


async def _built_file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _names():
        return Response(status_code=404)
    compresses = "br" in request.headers.get("accept-encoding", "") and name.endswith(TEXT)
    content = await asyncio.to_thread(_compressed if compresses else _content, name)
    headers = {**CACHED, **COMPRESSED} if compresses else CACHED
    return Response(content, headers=headers, media_type=mimetypes.guess_type(name)[0] or "application/octet-stream")


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(path.name for path in Path(BUILD_PATH_LIB).iterdir())


@functools.cache
def _compressed(name: str) -> bytes:
    """Returns a file in Brotli's form. All of them together are 5 MB."""
    return bytes(brotli.compress(_content(name), quality=6, mode=brotli.MODE_TEXT))


def _content(name: str) -> bytes:
    return (Path(BUILD_PATH_LIB) / name).read_bytes()
