"""Remembers the results that the server has sent as HTML, so that a kept run holds nothing else.

The browser sends results back when a run ends. A stranger could send other HTML, which a link would show to visitors.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Any

MOST = 20_000  # results that are remembered, 32 bytes each


class SentResults:
    """The digests of the newest results."""

    def __init__(self, most: int = MOST):
        self._most = most
        self._digests: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, value: Any) -> None:
        """Remembers the value of an HTML component, or the value in an update of one; ignores anything else."""
        html = value.get("value") if isinstance(value, dict) else value
        if isinstance(html, str) and html:
            with self._lock:
                self._digests[_digest(html)] = None
                self._digests.move_to_end(_digest(html))
                while len(self._digests) > self._most:
                    self._digests.popitem(last=False)

    def __contains__(self, html: Any) -> bool:
        with self._lock:
            return isinstance(html, str) and _digest(html) in self._digests


def _digest(html: str) -> bytes:
    return hashlib.sha256(html.encode("utf-8", "surrogatepass")).digest()
