"""Answers clients that ask for the events of an unknown call, or of one that has ended.

Gradio would begin its answer, break it off, and write a traceback into the log.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

if TYPE_CHECKING:
    from panels.running.root import Page

CALL = "/gradio_api/call/{name}/{event}"  # programs ask here
SESSION = "/gradio_api/queue/data"  # the page and Gradio's clients
UNKNOWN_CALL = "there is no such call, or its events were read already; make the call again"


class UnknownEvents(Route):
    """A route that matches if Gradio's queue has no events for the client."""

    def __init__(self, page: Page, path: str):
        super().__init__(path, _refuse_call if path == CALL else _refuse_session, methods=["GET"])
        self._page = page

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Returns how well a request matches."""
        match, found = super().matches(scope)
        if match is not Match.FULL:
            return Match.NONE, {}
        event = found["path_params"].get("event")
        session = self._session(event) if event else Request(scope).query_params.get("session_hash")
        if session is None or session in self._page._queue.pending_messages_per_session:
            return Match.NONE, {}
        return match, found

    def _session(self, event: str) -> str:
        """Returns the session of an event, as Gradio finds it; a call without a session is its own session."""
        queue = self._page._queue
        if (known := queue.event_ids_to_events.get(event)) is not None:
            return str(known.session_hash)
        found = (session for session, events in queue.pending_event_ids_session.items() if event in events)
        return str(next(found, event))


async def _refuse_call(request: Request) -> Response:
    return JSONResponse({"error": UNKNOWN_CALL, "detail": UNKNOWN_CALL}, 404)


async def _refuse_session(request: Request) -> Response:
    """Returns an event that makes Gradio's clients begin a new session."""
    message = {"msg": "unexpected_error", "message": UNKNOWN_CALL, "success": False, "session_not_found": True}
    return Response(f"data: {json.dumps(message)}\n\n", media_type="text/event-stream")


def event_routes(page: Page) -> list[BaseRoute]:
    """Returns the routes, which stand before Gradio's."""
    return [UnknownEvents(page, CALL), UnknownEvents(page, SESSION)]
