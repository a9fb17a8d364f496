"""Which other sites may read the answers of the page: those that `AccessMiddleware` allows, and no others.

Under any name but that of loopback, Gradio lets the pages of every site read, with the cookies of a visitor.
"""

from __future__ import annotations

from typing import Any

from gradio import routes
from starlette.types import ASGIApp, Receive, Scope, Send


class AllowsNoOrigin:
    """Middleware in place of Gradio's own for CORS. It passes every request on."""

    def __init__(self, app: ASGIApp, **settings: Any):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def allow_no_origin() -> None:
    """Makes servers that Gradio starts from now on leave CORS to the other middleware."""
    vars(routes)["CustomCORSMiddleware"] = AllowsNoOrigin
