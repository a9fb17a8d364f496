"""MCP at /mcp: the tools of `workbench.serving.mcp.tools` by HTTP, for assistants and editors that speak the protocol.

The access middleware and the gate stand before it as before the other routes. Each request is complete by itself: the
server keeps no sessions. Where the package `mcp` is not installed, /mcp says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from workbench.core.errors import Unavailable
from workbench.openai_api.errors import Refusal
from workbench.serving.expiry import removing_expired
from workbench.serving.kept_files import KeptFiles
from workbench.serving.mcp.files import upload_route
from workbench.serving.mcp.messages import InvalidMessage, check_message
from workbench.serving.routes.bodies import once_more, whole_body
from workbench.serving.service import Service, error_response
from workbench.system.tempdirs import make_tempdir, remove_tempdir

PATH = "/mcp"


class Mcp:
    """The routes of MCP over a service. They answer while `lifespan` runs.

    Args:
        stored_files: where uploads lie, whose owner removes those that are too old; by default in a folder that goes
            with the server.
    """

    def __init__(self, service: Service, stored_files: KeptFiles | None = None):
        self._service = service
        self._stored_files = stored_files
        self._app: ASGIApp | None = None

    def routes(self) -> list[BaseRoute]:
        """Returns the routes."""
        return [upload_route(self._service, self._folder), *(Route(path, self) for path in (PATH, f"{PATH}/"))]

    def _folder(self) -> KeptFiles:
        if self._stored_files is None:
            raise Unavailable("the server has not started yet, or ends; try again in a moment")
        return self._stored_files

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """Answers calls within the block."""
        if self._stored_files is not None:
            async with self._answering():
                yield
            return
        tempdir = make_tempdir()
        self._stored_files = KeptFiles(tempdir, self._service.pool.guard.limits)
        try:
            async with removing_expired(self._stored_files.remove_expired), self._answering():
                yield
        finally:
            self._stored_files = None
            remove_tempdir(tempdir)

    @contextlib.asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Answers calls of tools within the block, if the package is installed."""
        try:
            from mcp.server.transport_security import TransportSecuritySettings

            from workbench.serving.mcp.tools import build
        except ImportError:
            yield
            return
        server = build(self._service, self._folder())
        server.streamable_http_app(
            stateless_http=True,
            max_request_body_size=self._service.gate.largest_json,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # checked before
        )
        async with server.session_manager.run():
            self._app = server.session_manager.handle_request
            try:
                yield
            finally:
                self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        try:
            # GET would open a stream without an end and without a use: nothing is said outside of a call.
            if scope["method"] != "POST":
                raise Refusal(f"{PATH} takes POST, not {scope['method']:.20}", status=405)
            if self._app is None:
                raise Unavailable("MCP needs the package mcp of version 2: pip install 'speech-workbench[mcp]'")
            # The package would call a client that leaves, or the middleware's refusal of a body, a fault of the server.
            messages = await whole_body(receive)
            if messages is not None:
                body = b"".join(message.get("body", b"") for message in messages)
                await asyncio.to_thread(check_message, Headers(scope=scope).get("content-type", ""), body)
        except InvalidMessage as error:
            await error.answer()(scope, receive, send)
            return
        except Exception as error:
            response = error_response(error)
            if response.status_code == 405:
                response.headers["allow"] = "POST"
            await response(scope, receive, send)
            return
        if messages is not None:
            await self._app(scope, once_more(messages, receive), send)
