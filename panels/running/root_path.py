"""Gives every request the path of the page behind a proxy (`--root-path`), whether the proxy has passed it on or not.

By ASGI, the path of a request begins with `root_path`. Where a proxy has removed it, Starlette would not find the files
of a mounted folder.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from workbench.serving.admission.addresses import route_path


class RootPath:
    """The middleware; it must be the outermost."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on with its whole path."""
        if scope["type"] in ("http", "websocket") and (root := scope.get("root_path")):
            root = urlsplit(root).path.rstrip("/")  # Gradio also takes a whole address
            scope = {**scope, "root_path": root}
            scope["path"] = root + route_path(scope)
        await self._app(scope, receive, send)
