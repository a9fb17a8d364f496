"""Numbers for sequences that grow symbol by symbol. Equal sequences have equal numbers; nothing is hashed away."""

from __future__ import annotations

from itertools import repeat

import numpy as np


class Tree:
    """Sequences of symbols, each known as its parent and one more symbol.

    Args:
        roots: number of empty sequences; they have the numbers 0 to roots - 1.
        symbols: the symbols are 0 to symbols - 1.
    """

    def __init__(self, roots: int, symbols: int):
        self.roots, self.symbols = roots, max(symbols, 1)
        self._numbers: dict[int, int] = {}
        self.size = roots  # all numbers are below it
        self.parents = np.full(max(64, 2 * roots), -1, dtype=np.int64)
        self.last = np.full(len(self.parents), -1, dtype=np.int64)

    def number(self, parents: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        """Returns the numbers int64 [n] of the sequences that extend others by a symbol; new ones get new numbers."""
        free = range(self.size, self.size + len(parents))  # a sequence that has a number leaves a gap here
        keys = (parents * self.symbols + symbols).tolist()
        numbers = np.fromiter(map(self._numbers.setdefault, keys, free), dtype=np.int64, count=len(keys))
        self.size = max(self.size, int(numbers.max(initial=-1)) + 1)
        if self.size > len(self.parents):
            added_entries = np.full(max(len(self.parents), self.size - len(self.parents)), -1, dtype=np.int64)
            self.parents, self.last = (
                np.concatenate([self.parents, added_entries]),
                np.concatenate([self.last, added_entries]),
            )
        self.parents[numbers], self.last[numbers] = parents, symbols
        return numbers

    def find(self, parents: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        """Returns the numbers int64 [n] of the sequences that extend others by a symbol; -1 for those without one."""
        keys = (parents * self.symbols + symbols).tolist()
        return np.fromiter(map(self._numbers.get, keys, repeat(-1)), dtype=np.int64, count=len(keys))

    def sequence(self, number: int) -> tuple[int, ...]:
        """Returns the symbols of a sequence."""
        symbols: list[int] = []
        while number >= self.roots:
            symbols.append(int(self.last[number]))
            number = int(self.parents[number])
        return tuple(reversed(symbols))

    def keep(self, numbers: np.ndarray) -> tuple[Tree, np.ndarray]:
        """Returns a tree of these sequences, int64 [n], and their beginnings alone, and the new number of each old one,
        int64 [size], -1 for a sequence that is left out.
        """
        is_kept = np.zeros(self.size, dtype=bool)
        is_kept[: self.roots] = True
        while len(numbers):
            numbers = numbers[numbers >= 0]
            numbers = np.unique(numbers[~is_kept[numbers]])
            is_kept[numbers] = True
            numbers = self.parents[numbers]
        old_numbers = np.flatnonzero(is_kept)  # a parent has a lower number than its children
        renamed = np.full(self.size, -1, dtype=np.int64)
        renamed[old_numbers] = np.arange(len(old_numbers))
        smaller_tree = Tree(self.roots, self.symbols)
        kept_children = old_numbers[self.roots :]
        smaller_tree.number(renamed[self.parents[kept_children]], self.last[kept_children])
        return smaller_tree, renamed
