"""Compresses the page's HTML, which contains all settings and texts: from 1.1 MB to 0.2 MB.

Gradio compresses an answer only if its address ends with the name of a file. The page's address does not.
"""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from workbench.serving.admission.addresses import route_path

LEVEL = 5  # 23 ms for all tabs; level 9 takes 35 ms and saves 2 %


class CompressedPage:
    """Middleware that compresses the page. It must be the outermost, as others change the HTML."""

    def __init__(self, app: ASGIApp):
        self._app, self._compressing = app, GZipMiddleware(app, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = scope["type"] == "http" and route_path(scope) in ("", "/")
        await (self._compressing if page else self._app)(scope, receive, send)
