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
        limit: for all visitors together.
        per_visitor: for one visitor.
        per_address: how many visitors' shares one network address has.
        unit: what takes a place, such as "live recordings".
    """

    def __init__(self, limit: int, per_visitor: int, per_address: int, unit: str):
        self._limit, self._unit = limit, unit
        self._shares = (per_visitor, per_visitor * per_address)
        self._lock = threading.Lock()
        self._used: Counter[Hashable] = Counter()

    @contextmanager
    def hold(self, visitor: Visitor) -> Iterator[None]:
        """Holds a place; raises `Refusal` if all are taken, or the visitor holds its share."""
        holders: tuple[Hashable, ...] = (visitor, visitor.address)
        with self._lock:
            if self._used.total() // len(holders) >= self._limit:
                raise self._full(f"this server takes {self._limit} {self._unit} at a time, and all places are taken")
            for holder, share in zip(holders, self._shares, strict=True):
                if self._used[holder] >= share:
                    raise self._full(f"this server takes {share} {self._unit} of one visitor at a time")
            self._used.update(holders)
        try:
            yield
        finally:
            with self._lock:
                self._used.subtract(holders)
                self._used = +self._used  # forgets those without a place

    def _full(self, sentence: str) -> Refusal:
        return Refusal(f"{sentence}; ask again in a moment", code="rate_limit_exceeded", status=429)
