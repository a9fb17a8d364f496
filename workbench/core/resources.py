"""Closing what holds memory beyond Python's: the networks and language models of some runtimes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Closeable(Protocol):
    """What gives its memory back when told; of no use afterwards."""

    def close(self) -> None:
        """Gives the memory back. May be called again."""
        ...


def close(*parts: object) -> None:
    """Closes those of the parts that can be closed; the others' memory goes when nobody refers to them."""
    for part in parts:
        if isinstance(part, Closeable):
            part.close()
