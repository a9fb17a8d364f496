"""Who may ask a server for what, and how much at a time. Every route asks the gate before it works.

It refuses pages of other sites, and more work than the server has places for. Before it,
`workbench.serving.access_middleware` checks keys, rates, sizes and the name of the server. After it,
`workbench.serving.guard` has the queue, and the limits of what each call may cost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from starlette.requests import HTTPConnection

from workbench.openai_api.errors import Refusal

RUNS_AT_ONCE = 16  # as on the page: most sessions run one call at a time
LARGEST_BODY = 1 << 30  # bytes of a request with a recording
LARGEST_JSON = 360 << 20  # bytes of a request in JSON; embeddings of 256 MB in base64


def same_origin(headers: Mapping[str, str]) -> bool:
    """Returns whether a request comes from a program or this server's own page, and not from another site."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("x-forwarded-host", headers.get("host"))


class Gate:
    """The gate of a server of one's own."""

    def __init__(self, at_once: int = RUNS_AT_ONCE, largest_body: int = LARGEST_BODY, largest_json: int = LARGEST_JSON):
        self.largest_body, self.largest_json = largest_body, largest_json
        self._slots = threading.BoundedSemaphore(at_once)
        self._at_once = at_once

    def check(self, connection: HTTPConnection) -> None:
        """Raises `Refusal` for a request that may not be answered at all."""
        if not same_origin(connection.headers):
            raise Refusal("the request comes from a page of another site", status=403)

    @contextmanager
    def working(self, connection: HTTPConnection, kind: str) -> Iterator[None]:
        """Holds a slot for one piece of work, such as `transcribe` or `chat`; raises `Refusal` if none is free."""
        if not self._slots.acquire(blocking=False):
            raise Refusal(
                f"this server does {self._at_once} pieces of work at a time, and all are taken; ask again in a moment",
                code="rate_limit_exceeded",
                status=429,
            )
        try:
            yield
        finally:
            self._slots.release()
