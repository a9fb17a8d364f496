"""The last result of each user, kept in the page's process until a newer one replaces it or the user leaves."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from panels.running.shares import first_to_forget
from workbench.core.errors import BadInput
from workbench.core.visitors import current_visitor

MAX_RESULTS = 16  # results of users whose page is open; results may be large

Result = TypeVar("Result")


class LastResults(Generic[Result]):
    """The last result of each user.

    Args:
        message: the sentence for a user whose result was removed.
        limit: how many results of all users are kept. If there are more, the least recently used one of the network
            address with the most results is removed.
        close: frees a result that is removed.
    """

    def __init__(self, message: str, limit: int = MAX_RESULTS, close: Callable[[Result], None] | None = None):
        self._message = message
        self._limit = limit
        self._close = close
        self._results: OrderedDict[str, Result] = OrderedDict()
        self._addresses: dict[str, str] = {}  # by user
        self._lock = threading.Lock()

    def put(self, user: str, result: Result) -> None:
        """Stores a result instead of the user's last one; if there are too many, removes another one."""
        with self._lock:
            removed = [self._results.pop(user)] if user in self._results else []
            self._results[user], self._addresses[user] = result, current_visitor().address
            while len(self._results) > self._limit:
                forgotten = first_to_forget({each: self._addresses[each] for each in self._results}, user)
                del self._addresses[forgotten]
                removed.append(self._results.pop(forgotten))
        for each in removed:
            self._free(each)

    def get(self, user: str) -> Result | None:
        """Returns the user's result, or None."""
        with self._lock:
            if user in self._results:
                self._results.move_to_end(user)
            return self._results.get(user)

    def of(self, user: str) -> Result:
        """Returns the user's result; raises `BadInput` if it was removed."""
        result = self.get(user)
        if result is None:
            raise BadInput(self._message)
        return result

    def drop(self, user: str) -> None:
        """Removes the user's result."""
        with self._lock:
            result = self._results.pop(user, None)
            self._addresses.pop(user, None)
        if result is not None:
            self._free(result)

    def close(self) -> None:
        """Removes all results."""
        for user in list(self._results):
            self.drop(user)

    def _free(self, result: Result) -> None:
        if self._close is not None:
            self._close(result)
