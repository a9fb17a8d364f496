"""Counts the values in a JSON text before it is read, because a value of three bytes takes seventy in memory."""

from __future__ import annotations


def count_values(*pieces: bytes | bytearray | str) -> int:
    """Returns at least the number of values in a JSON text in pieces. Commas and brackets inside texts count."""
    found = 0
    for piece in pieces:
        if isinstance(piece, str):
            found += sum(piece.count(mark) for mark in ("{", "[", ","))
        else:
            found += sum(piece.count(mark) for mark in (b"{", b"[", b","))
    return found
