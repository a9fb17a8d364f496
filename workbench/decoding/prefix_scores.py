"""Log-probabilities of rows of tokens that share their beginnings: each distinct beginning is computed once.

A node of the tree stands for one beginning of a row. A runtime's class computes the nodes that are needed and not yet
known; what it remembers of them is bounded. This file knows no network.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

TREE_NODES_PER_REMEMBERED = 16  # nodes of the tree for each node of the capacity; most are asked for and never computed


class PrefixTree:
    """The distinct beginnings of rows. Nodes are numbered from 0; a parent has a smaller number than its children."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []  # -1 for the first token of a row
        self.depths: list[int] = []
        self.logprobs: list[float] = []  # ln P(token | tokens before it); nan where it is not known
        self._nodes: dict[tuple[int, int], int] = {}  # by parent and token

    def add(self, row: Sequence[int]) -> list[int]:
        """Returns the nodes of all beginnings of a row, the shortest first; adds those that are new."""
        node, path = -1, []
        for depth, token in enumerate(row):
            next_node = self._nodes.get((node, token))
            if next_node is None:
                next_node = self._nodes[node, token] = len(self.tokens)
                self.tokens.append(token)
                self.parents.append(node)
                self.depths.append(depth)
                self.logprobs.append(math.nan)
            node = next_node
            path.append(node)
        return path

    def path(self, node: int) -> list[int]:
        """Returns the nodes from the first one to this one."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]


class PrefixScorer(ABC):
    """Computes log-probabilities of rows, and remembers the nodes that it has computed until there are too many.

    Several threads may call it; one is served at a time.

    Args:
        capacity: the number of nodes to remember, and of new ones to compute together. When more are needed, all are
            forgotten and computed again as needed, so that there are twice as many at most; more for a longer row.
        max_rows: rows that are computed together at most.
    """

    def __init__(self, capacity: int, max_rows: int):
        self.tree = PrefixTree()
        self.passes = 0  # number of passes of the network
        self.positions = 0  # number of positions that these passes have computed
        self._capacity = capacity
        self._max_rows = max_rows
        self._lock = threading.Lock()

    def score(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Returns for each row ln P of every token but the first, given the tokens before it: float64 [tokens - 1]."""
        with self._lock:
            return [scores for group in self._groups(rows) for scores in self._score_group(group)]

    def _groups(self, rows: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
        """Yields the rows in groups whose new nodes fit into the capacity, and all their nodes into twice of it.

        If the new nodes of a group do not fit beside the remembered ones, the scorer computes all its nodes again.
        """
        group: list[Sequence[int]] = []
        new_nodes, all_nodes = set[int](), set[int]()
        for row in rows:
            path, missing = self._nodes_of(row)
            is_full = (
                len(new_nodes) + len(missing - new_nodes) > self._capacity
                or len(all_nodes) + len(path - all_nodes) > 2 * self._capacity
            )
            if group and (is_full or len(group) == self._max_rows):
                yield group
                group, new_nodes, all_nodes = [], set(), set()
                path, missing = self._nodes_of(row)  # of another tree, if all was forgotten
            group.append(row)
            new_nodes |= missing
            all_nodes |= path
        if group:
            yield group

    def _nodes_of(self, row: Sequence[int]) -> tuple[set[int], set[int]]:
        """Returns the nodes that score a row (of all tokens but the last), and those of them that are not computed."""
        path = set(self.tree.add(row)[:-1])
        return path, {node for node in path if not self.computed(node)}

    def _score_group(self, group: Sequence[Sequence[int]]) -> list[np.ndarray]:
        try:
            is_full = len(self.tree.tokens) > TREE_NODES_PER_REMEMBERED * self._capacity
            if is_full or not self._compute_group(group):
                self._restart()
                self._compute_group(group)
        except BaseException:
            self._restart()  # nodes may be half computed
            raise
        logprobs, add = self.tree.logprobs, self.tree.add
        return [np.array([logprobs[node] for node in add(row)[1:]], dtype=np.float64) for row in group]

    def _compute_group(self, group: Sequence[Sequence[int]]) -> bool:
        tree = self.tree
        nodes = {node for row in group for node in tree.add(row)[1:] if math.isnan(tree.logprobs[node])}
        return not nodes or self.compute(sorted(nodes))

    def _restart(self) -> None:
        self.tree = PrefixTree()
        self.forget()

    def missing_ancestors(self, nodes: Sequence[int]) -> list[int]:
        """Returns the ancestors of these nodes that are not computed yet, in the order of their numbers."""
        ancestors: set[int] = set()
        for node in nodes:
            ancestor = self.tree.parents[node]
            while ancestor >= 0 and ancestor not in ancestors and not self.computed(ancestor):
                ancestors.add(ancestor)
                ancestor = self.tree.parents[ancestor]
        return sorted(ancestors)

    @abstractmethod
    def computed(self, node: int) -> bool:
        """Returns whether a node is remembered."""

    @abstractmethod
    def forget(self) -> None:
        """Forgets all nodes. The tree is empty by then."""

    @abstractmethod
    def compute(self, nodes: Sequence[int]) -> bool:
        """Computes and remembers the missing ancestors of these nodes, and sets the nodes' log-probabilities.

        Returns False, without any work, if there is no room for the new nodes. If nothing is remembered, there is room.
        """
