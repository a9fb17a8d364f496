"""The trie of a lexicon's spellings, as arrays. Large lexicons have millions of nodes, so it is made depth by depth."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from workbench.decoding.ctc_beam.lexicon import Lexicon


@dataclass(frozen=True)
class Trie:
    """Nodes are numbered from the root 0 in the order in which the spellings need them."""

    nodes: int
    keys: np.ndarray  # int64 [nodes - 1]: node * vocabulary + token of each arc, ascending
    targets: np.ndarray  # int64 [nodes - 1]: the node to which each arc leads
    parents: np.ndarray  # int64 [nodes]; 0 for the root
    levels: tuple[np.ndarray, ...]  # the nodes of each depth from 1 on
    ends: np.ndarray  # int64 [n], ascending: a node at which a word ends
    words: np.ndarray  # int64 [n]: that word; at the same node, ascending


def trie_of(lexicon: Lexicon, vocabulary: int) -> Trie:
    """Returns the trie of a lexicon whose tokens are ids below `vocabulary`."""
    spellings = [spelling for spellings in lexicon.pronunciations for spelling in spellings]
    counts = np.fromiter(map(len, lexicon.pronunciations), dtype=np.int64, count=len(lexicon.pronunciations))
    lengths = np.fromiter(map(len, spellings), dtype=np.int64, count=len(spellings))
    tokens = np.fromiter(chain.from_iterable(spellings), dtype=np.int64, count=int(lengths.sum()))
    starts = np.cumsum(lengths) - lengths

    reached = np.zeros(len(spellings), dtype=np.int64)  # the node of each spelling; here numbered depth by depth
    remaining = np.arange(len(spellings))
    keys, firsts = [], []  # of each depth: the arcs to its nodes, and the first spelling that needs each node
    size = depth = 1
    while len(remaining := remaining[lengths[remaining] >= depth]):
        arcs = reached[remaining] * vocabulary + tokens[starts[remaining] + depth - 1]
        unique_arcs, first, node = np.unique(arcs, return_index=True, return_inverse=True)
        reached[remaining] = size + node
        keys.append(unique_arcs)
        firsts.append(remaining[first])
        size, depth = size + len(unique_arcs), depth + 1

    sizes = [len(each) for each in keys]
    needed = np.lexsort((np.repeat(np.arange(len(sizes)), sizes), np.concatenate(firsts)))
    number = np.zeros(size, dtype=np.int64)
    number[1 + needed] = np.arange(1, size)
    arcs, targets = np.concatenate(keys), number[1:]
    parents = np.zeros(size, dtype=np.int64)
    parents[targets] = number[arcs // vocabulary]
    arcs = parents[targets] * vocabulary + arcs % vocabulary
    order = np.argsort(arcs)
    word_of_spelling = np.repeat(np.arange(len(counts)), counts)
    ends, words = np.divmod(np.unique(number[reached] * len(counts) + word_of_spelling), len(counts))
    levels = tuple(np.split(targets, np.cumsum(sizes)[:-1]))
    return Trie(size, arcs[order], targets[order], parents, levels, ends, words)
