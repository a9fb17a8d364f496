"""Phrases that a search boosts, and the automaton that counts them.

A phrase is a sequence of symbols: tokens, or words with a lexicon. In a text, the occurrences that count are the
leftmost ones, the longest of those that start together, and they do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.core.errors import BadInput
from workbench.decoding.ctc_beam.lexicon import text_lines, token_ids
from workbench.formats.text_files import words_of


@dataclass(frozen=True)
class Phrases:
    """Phrases as sequences of symbols: token ids, or indices of a lexicon's words."""

    sequences: tuple[tuple[int, ...], ...]

    def check(self, symbols: int, kind: str, blank: int | None = None) -> None:
        """Raises `BadInput` if a phrase is empty, or holds the blank or something else than so many tokens or words."""
        for sequence in self.sequences:
            if not sequence or not all(0 <= symbol < symbols for symbol in sequence):
                raise BadInput(f"a phrase is {list(sequence)}; expected one or more {kind} from 0 to {symbols - 1}")
            if blank in sequence:
                raise BadInput(f"a phrase is {list(sequence)}; it has the blank {blank}, which is never in a result")


def read_phrases(
    path: str | Path, names: Sequence[str], what: str = "token of the vocabulary", blank: int | None = None
) -> Phrases:
    """Returns the phrases in a file: a phrase a line, its symbols separated by ASCII white space.

    Args:
        path: the file, in UTF-8.
        names: the names of the symbols: of each token id, or the words of the lexicon.
        what: what a name is, for messages.
        blank: the id that no phrase may have, as no result has it; None for words.

    Raises `BadInput` for a file that cannot be read, a file without phrases, an unknown name, or the blank.
    """
    ids = token_ids(names)
    sequences: dict[tuple[int, ...], None] = {}
    for number, line in text_lines(path, "list of phrases"):
        symbols = words_of(line)
        for name in symbols:
            if name not in ids or ids[name] == blank:
                reason = f"not a {what}" if name not in ids else "the blank"
                raise BadInput(
                    f"line {number} of the list of phrases {Path(path).name} has {name!r:.40}, which is {reason}"
                )
        sequences[tuple(ids[name] for name in symbols)] = None
    if not sequences:
        raise BadInput(f"the list of phrases {Path(path).name} has no phrases; expected one a line")
    return Phrases(tuple(sequences))


class PhraseCounter:
    """Counts the symbols of phrases in a text that comes symbol by symbol, for many texts at once.

    A state is a node of the trie of phrases: the end of the text that may still grow into a phrase. What comes before
    is decided: its symbols in phrases are `earned`. The states do not depend on how the text was cut into steps.
    """

    def __init__(self, phrases: Phrases, symbols: int):
        self._symbols = symbols
        children, ends = _trie(phrases)
        arcs = sorted(
            (node * symbols + symbol, child)
            for node, targets in enumerate(children)
            for symbol, child in targets.items()
        )
        self._keys = np.array([key for key, _ in arcs], dtype=np.int64)
        self._children = np.array([child for _, child in arcs], dtype=np.int64)
        depth, earned_on_failure, failure_node, at_end = _connected(children, ends)
        self.depth = np.array(depth, dtype=np.int64)  # symbols on the way from the root
        # What is earned when the text no longer grows into a phrase, and the node where the search continues then.
        self._earned_on_failure = np.array(earned_on_failure, dtype=np.int64)
        self._failure_node = np.array(failure_node, dtype=np.int64)
        self.at_end = np.array(at_end, dtype=np.int64)  # earned by the state's text if nothing follows

    def advance(self, states: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the states int64 [n] after one more symbol each, and how many symbols it earned each, int64 [n]."""
        earned = np.zeros(len(states), dtype=np.int64)
        next_states = np.zeros(len(states), dtype=np.int64)
        if not len(self._keys):
            return next_states, earned
        rows, nodes = np.arange(len(states)), states
        while len(rows):
            keys = nodes * self._symbols + symbols[rows]
            indices = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            grows = self._keys[indices] == keys
            next_states[rows[grows]] = self._children[indices[grows]]
            fails = ~grows & (nodes > 0)  # from the root, a symbol that starts no phrase leads to the root
            rows, nodes = rows[fails], nodes[fails]
            earned[rows] += self._earned_on_failure[nodes]
            nodes = self._failure_node[nodes]
        return next_states, earned


def _trie(phrases: Phrases) -> tuple[list[dict[int, int]], list[bool]]:
    """Returns the children of each node of the trie of the phrases, and whether a phrase ends there; the root is 0."""
    children: list[dict[int, int]] = [{}]
    ends = [False]
    for sequence in phrases.sequences:
        node = 0
        for symbol in sequence:
            if symbol not in children[node]:
                children[node][symbol] = len(children)
                children.append({})
                ends.append(False)
            node = children[node][symbol]
        ends[node] = True
    return children, ends


def _connected(
    children: Sequence[dict[int, int]], ends: Sequence[bool]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Returns of each node of the trie: its depth; what its text earns when it cannot grow; the node where the search
    goes on then; and what its text earns if nothing follows.
    """
    depth, earned, failure, at_end = ([0] * len(children) for _ in range(4))
    nodes = [0]
    for parent in nodes:  # from short to long, as the failure node of each has a shorter text
        for symbol, node in children[parent].items():
            nodes.append(node)
            depth[node] = depth[parent] + 1
            if ends[node]:
                earned[node] = depth[node]
            elif parent:
                earned[node], state = earned[parent], failure[parent]
                while state and symbol not in children[state]:
                    earned[node] += earned[state]
                    state = failure[state]
                failure[node] = children[state].get(symbol, 0)
            at_end[node] = earned[node] + at_end[failure[node]]
    return depth, earned, failure, at_end
