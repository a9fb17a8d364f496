"""Compresses the page's HTML, which contains all its settings and texts: a megabyte becomes a fifth of it.

Gradio compresses what has a file's name at the end of its address, and the page has none.
"""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

LEVEL = 5  # of 9; higher ones take longer and win a percent


class CompressedPage:
    """Middleware outside of all that change the HTML."""

    def __init__(self, app: ASGIApp):
        self._app, self._compressing = app, GZipMiddleware(app, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = scope["type"] == "http" and scope["path"] in ("", "/")
        await (self._compressing if page else self._app)(scope, receive, send)
