"""Decides which of the stored values of many visitors is forgotten when there are too many.

So one visitor cannot drive out the values of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


def first_to_forget(addresses: Mapping[str, str], newest: str) -> str:
    """Returns the oldest key of the network address that has the most keys.

    Args:
        addresses: the address of each key, the oldest first; at least two.
        newest: a key that is kept.
    """
    counts = Counter(addresses.values())
    others = [key for key in addresses if key != newest]
    most = max(counts[addresses[key]] for key in others)
    return next(key for key in others if counts[addresses[key]] == most)
