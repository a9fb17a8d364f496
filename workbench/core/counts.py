"""Counts in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Returns such as `1 stage` or `3 stages`, for a noun whose plural ends in s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
