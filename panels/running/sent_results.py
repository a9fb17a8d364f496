"""Remembers the results that the server has sent as HTML, so that a kept run holds nothing else.

The browser sends results back when a run ends. A stranger could send other HTML, which a link would show to visitors.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from gradio.blocks import Block

MAX_RESULTS = 20_000  # results that are remembered, 32 bytes each


class SentResults:
    """The digests of the newest results in the components whose HTML is stored with runs."""

    def __init__(self, limit: int = MAX_RESULTS):
        self._limit = limit
        self._components = set[int]()
        self._digests: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, components: Iterable[Block]) -> SentResults:
        """Remembers results in these components from now on; returns itself."""
        self._components.update(component._id for component in components)
        return self

    def add(self, component: Block, value: Any) -> None:
        """Remembers the value of a component, or the value in an update of it, if its results are stored."""
        html = value.get("value") if isinstance(value, dict) else value
        if component._id in self._components and isinstance(html, str) and html:
            with self._lock:
                self._digests[_digest(html)] = None
                self._digests.move_to_end(_digest(html))
                while len(self._digests) > self._limit:
                    self._digests.popitem(last=False)

    def __contains__(self, html: Any) -> bool:
        with self._lock:
            return isinstance(html, str) and _digest(html) in self._digests


def _digest(html: str) -> bytes:
    return hashlib.sha256(html.encode("utf-8", "surrogatepass")).digest()
