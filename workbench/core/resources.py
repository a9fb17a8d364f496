"""Closes objects that hold memory outside Python: the networks and language models of some runtimes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Closeable(Protocol):
    """An object that frees its memory on `close` and cannot be used afterwards."""

    def close(self) -> None:
        """Frees the memory. A second call does nothing."""
        ...


def close(*parts: object) -> None:
    """Closes each part that can be closed. Python frees the memory of the others when nothing refers to them."""
    for part in parts:
        if isinstance(part, Closeable):
            part.close()
