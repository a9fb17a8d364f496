"""Limits the work that a server does at a time. Every route asks the gate before it works.

It refuses more work than the server has places for. Before it, `access_middleware` checks keys, rates, sizes, the name
of the server and the site of the page that asks. After it, `guard` has the queue, and the limits of what each call may
cost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.openai_api.errors import Refusal
from workbench.serving.admission.limits import Limits
from workbench.serving.admission.places import Places


class Gate:
    """The gate of a server. Live recordings have places of their own, so they leave those of other work free."""

    def __init__(self, limits: Limits):
        self.largest_body, self.largest_json = limits.file_mb << 20, limits.body_mb << 20
        self.largest_text = limits.text_kb << 10
        self._at_once = limits.running + limits.waiting
        self._slots = threading.BoundedSemaphore(self._at_once)
        self.live = Places(limits.live, limits.live_per_visitor, limits.per_address, "live recordings")
        self.live_idle_seconds = limits.live_idle_seconds

    @contextmanager
    def working(self) -> Iterator[None]:
        """Holds a slot for one piece of work, such as a transcription; raises `Refusal` if none is free."""
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
