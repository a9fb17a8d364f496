"""Scoring rows that share prefixes against scoring each row alone, with different cache sizes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workbench.decoding.prefix_scores import PrefixScorer, PrefixTree


def logprob(before: Sequence[int], token: int) -> float:
    """Returns a log-probability that depends on every earlier token."""
    return -random.Random(repr((list(before), token))).expovariate(1.0)


class Counted(PrefixScorer):
    """Computes one node after another; refuses a node computed before or without its parent."""

    def __init__(self, room: int, max_rows: int = 100):
        super().__init__(room, max_rows)
        self.prefixes: dict[int, tuple[int, ...]] = {}
        self.most = self.forgotten = 0
        self.broken = False

    def computed(self, node: int) -> bool:
        return node in self.prefixes

    def forget(self) -> None:
        self.prefixes = {}
        self.forgotten += 1

    def compute(self, nodes: Sequence[int]) -> bool:
        needed = self.missing_ancestors(nodes)
        if self.prefixes and len(self.prefixes) + len(needed) > self._capacity:
            return False
        tree = self.tree
        for node in needed:
            assert node not in self.prefixes
            above = self.prefixes[tree.parents[node]] if tree.parents[node] >= 0 else ()
            self.prefixes[node] = (*above, tree.tokens[node])
            assert tree.depths[node] == len(above)
        if self.broken:
            raise ValueError("out of memory")
        for node in nodes:
            assert math.isnan(tree.logprobs[node])
            tree.logprobs[node] = logprob(self.prefixes[tree.parents[node]], tree.tokens[node])
        self.passes += 1
        self.positions += len(needed)
        self.most = max(self.most, len(self.prefixes))
        return True


def slow_scores(row: Sequence[int]) -> list[float]:
    return [logprob(row[:place], row[place]) for place in range(1, len(row))]


LONGEST = 6
ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=LONGEST), max_size=8)


@given(calls=st.lists(ROWS, max_size=5), room=st.integers(1, 30), max_rows=st.integers(1, 5))
@example(calls=[[[0, 2, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0], [1, 0, 0]]], room=2, max_rows=2)
def test_row_scores_with_shared_prefixes_equal_scores_of_each_row_alone(
    calls: list[list[list[int]]], room: int, max_rows: int
) -> None:
    scorer = Counted(room, max_rows)
    for rows in calls:
        scores = scorer.score(rows)
        assert [each.tolist() for each in scores] == [slow_scores(row) for row in rows]
        assert all(each.dtype == np.float64 for each in scores)
    assert scorer.most <= max(2 * room, LONGEST), "a longer row is computed alone"


def test_shared_prefix_is_computed_once() -> None:
    scorer = Counted(100)
    scorer.score([[0, 1, 2], [0, 1, 3], [0, 1, 2, 4]])
    assert (scorer.passes, scorer.positions) == (1, 3)  # the beginnings 0, 01 and 012
    scorer.score([[0, 1, 5], [0, 1, 2, 6]])
    assert (scorer.passes, scorer.positions) == (2, 3), "their distributions are known"
    scorer.score([[0, 1, 2], [0]])
    assert (scorer.passes, scorer.positions) == (2, 3)
    scorer.score([[0, 1, 2, 4, 1, 1]])
    assert (scorer.passes, scorer.positions) == (3, 5)


def test_prefix_tree_size_is_bounded() -> None:
    """Also if only the last tokens differ, so that no new prefix is computed."""
    scorer = Counted(4)
    for token in range(1000):
        scorer.score([[0, token]])
    assert len(scorer.tree.tokens) <= 66 and 10 < scorer.forgotten < 20


def test_failed_scoring_leaves_the_cache_consistent() -> None:
    scorer = Counted(100)
    scorer.score([[0, 1]])
    scorer.broken = True
    with pytest.raises(ValueError, match="out of memory"):
        scorer.score([[0, 1, 2]])
    scorer.broken = False
    assert scorer.score([[0, 1, 2]])[0].tolist() == slow_scores([0, 1, 2])


def test_prefix_tree_nodes_are_numbered_from_the_root() -> None:
    tree = PrefixTree()
    assert tree.add([7, 8, 9]) == [0, 1, 2] and tree.add([7, 9, 9]) == [0, 3, 4] and tree.add([7, 8, 9]) == [0, 1, 2]
    assert tree.path(4) == [0, 3, 4] and tree.parents == [-1, 0, 1, 0, 3] and tree.tokens == [7, 8, 9, 9, 9]
