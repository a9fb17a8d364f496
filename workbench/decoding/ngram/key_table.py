"""Finds thousands of 64-bit keys in a fixed set of millions at once: a hash table with open addressing, in numpy.

Knuth, "The Art of Computer Programming", volume 3, section 6.4 (linear probing). At most a third of the slots is
filled, so that most searches end at their first slot.
"""

from __future__ import annotations

import numpy as np

_MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio, for Fibonacci hashing
_EMPTY = np.int64(-1)


class KeyTable:
    """The places of distinct keys int64 [n], none of them negative."""

    def __init__(self, keys: np.ndarray):
        bits = max(int(3 * len(keys)).bit_length(), 4)
        self._shift = np.uint64(64 - bits)
        self._last = np.int64((1 << bits) - 1)
        self._keys = np.full(1 << bits, _EMPTY)
        self._places = np.zeros(1 << bits, np.int32)
        pending = np.arange(len(keys), dtype=np.int32)
        slots = self._first_slots(keys)
        while len(pending):
            is_free = self._keys[slots] == _EMPTY
            self._keys[slots[is_free]] = keys[pending[is_free]]  # of several keys for one slot, one is kept
            is_stored = self._keys[slots] == keys[pending]
            self._places[slots[is_stored]] = pending[is_stored]
            pending = pending[~is_stored]
            slots = (slots[~is_stored] + 1) & self._last
        self._filled = self._keys != _EMPTY  # small, so that most keys that are not in the set are told quickly

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Returns the places of keys int64 [m] in the set, int64 [m]; -1 for a key that is not in it."""
        places = np.full(len(keys), -1)
        slots = self._first_slots(keys)
        open_indices = self._filled.take(slots).nonzero()[0]
        slots, keys = slots.take(open_indices), keys.take(open_indices)
        while len(open_indices):
            slot_keys = self._keys.take(slots)
            is_hit = slot_keys == keys
            places[open_indices[is_hit]] = self._places[slots[is_hit]]
            continuing = (~is_hit & (slot_keys != _EMPTY)).nonzero()[0]
            open_indices, slots, keys = (
                open_indices.take(continuing),
                (slots.take(continuing) + 1) & self._last,
                keys.take(continuing),
            )
        return places

    def _first_slots(self, keys: np.ndarray) -> np.ndarray:
        return ((keys.astype(np.uint64) * _MIXER) >> self._shift).astype(np.int64)
