"""Middleware before Gradio's routes, which refuses an unreadable body in one sentence, with status 400.

Gradio would answer `Internal Server Error`, and write a traceback into the log. A function that refuses what it was
given answers with the status of its refusal. This file knows no endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from panels.running.call_status import with_fitting_status
from workbench.core.errors import BadInput, WorkbenchError
from workbench.openai_api.errors import Refusal, error_answer
from workbench.serving.admission.addresses import route_path
from workbench.serving.routes.bodies import once_more, parsed, whole_body

if TYPE_CHECKING:
    from panels.running.root import Page

CALLS = re.compile(r"/gradio_api/(?:run|api|call|queue/join)(?:/|$)")  # addresses that call a function of the page
CANCELS = re.compile(r"/gradio_api/(?:cancel|reset)/?$")
NAME = re.compile(r"/gradio_api/(?:run|api|call)/([^/]+)/?$")
LONGEST_ID = 200  # characters; the server keeps the ids of thousands of sessions, and Gradio's clients send at most 36
EXPECTED = "expected a JSON object with data, as `Use via API` describes it"


class JsonBodies:
    """The middleware.

    Args:
        app: the application behind it.
        page: the page with the functions that are called.
    """

    def __init__(self, app: ASGIApp, page: Page):
        self._app, self._page = app, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it on."""
        path = route_path(scope) if scope["type"] == "http" and scope["method"] == "POST" else ""
        if not (CALLS.match(path) or CANCELS.match(path)):
            await self._app(scope, receive, send)
            return
        try:
            messages = await whole_body(receive)
            if messages is None:
                return
            if not Headers(scope=scope).get("content-type", "").startswith("multipart/"):
                self._check(path, b"".join(each.get("body", b"") for each in messages))
        except WorkbenchError as error:
            body = {"error": str(error), "detail": str(error)}
            await JSONResponse(body, error_answer(error)[0])(scope, receive, send)
            return
        with with_fitting_status(send) as answer:
            await self._app(scope, once_more(messages, receive), answer)

    def _check(self, path: str, body: bytes) -> None:
        try:
            fields = parsed(body)
        except ValueError:
            raise BadInput(f"the body of the request is not JSON; {EXPECTED}") from None
        if not isinstance(fields, Mapping):
            raise BadInput(f"the body of the request is not a JSON object; {EXPECTED}")
        for field in ("session_hash", "event_id"):
            if not isinstance(fields.get(field, ""), (str, type(None))):
                raise BadInput(f"{field} is {fields[field]!r:.80}; expected a text")
            if fields.get(field) == "":  # Gradio would send the messages to a session that does not exist
                raise BadInput(f"{field} is empty; expected a text, or leave it out")
            if len(fields.get(field) or "") > LONGEST_ID:
                raise BadInput(f"{field} has {len(fields[field])} characters; expected at most {LONGEST_ID}")
        if not CALLS.match(path) or "/call/v2/" in path:
            return
        if not isinstance(fields.get("data"), list):
            raise BadInput(f"data is not a list; {EXPECTED}")
        number, name = fields.get("fn_index"), NAME.match(path)
        if number is None and name is not None and self._has_endpoint(name[1]):
            return
        if not isinstance(number, int) or isinstance(number, bool) or number not in self._page.fns:
            function = name[1] if name and number is None else number
            raise Refusal(f"the page has no function {function!r:.80}; {EXPECTED}", status=404)

    def _has_endpoint(self, name: str) -> bool:
        return any(each.api_name == name for each in self._page.fns.values())
