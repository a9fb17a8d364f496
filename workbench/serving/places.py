"""Places for connections that stay open. One visitor and one network address may hold only a share of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from workbench.core.visitors import Visitor
from workbench.openai_api.errors import Refusal


class Places:
    """The places.

    Args:
        most: for all visitors together.
        per_visitor: for one visitor.
        per_address: how many visitors' shares one network address has.
        what: what takes a place, such as "live recordings".
    """

    def __init__(self, most: int, per_visitor: int, per_address: int, what: str):
        self._most, self._what = most, what
        self._shares = (per_visitor, per_visitor * per_address)
        self._lock = threading.Lock()
        self._taken: Counter[Hashable] = Counter()

    @contextmanager
    def taken(self, visitor: Visitor) -> Iterator[None]:
        """Holds a place; raises `Refusal` if all are taken, or the visitor holds its share."""
        holders: tuple[Hashable, ...] = (visitor, visitor.address)
        with self._lock:
            if self._taken.total() // len(holders) >= self._most:
                raise self._full(f"this server takes {self._most} {self._what} at a time, and all places are taken")
            for holder, share in zip(holders, self._shares, strict=True):
                if self._taken[holder] >= share:
                    raise self._full(f"this server takes {share} {self._what} of one visitor at a time")
            self._taken.update(holders)
        try:
            yield
        finally:
            with self._lock:
                self._taken.subtract(holders)
                self._taken = +self._taken  # forgets those without a place

    def _full(self, sentence: str) -> Refusal:
        return Refusal(f"{sentence}; ask again in a moment", code="rate_limit_exceeded", status=429)
