"""Log-probabilities of rows of tokens on llama.cpp. Rows with the same beginning share its keys and values.

Each leaf of the tree of beginnings is a sequence of llama.cpp's; a token belongs to the sequences of all leaves below
it. llama.cpp keeps no logits. So if the children of a node are needed later, the node is computed again, alone. This
file knows no text and no family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.decoding.prefix_scores import PrefixScorer
from workbench.runtimes.gguf.llama_cpp.context import PASS, STEP, Context
from workbench.runtimes.gguf.llama_cpp.llama import LlamaModel

CAPACITY = 1024  # positions whose keys and values are remembered
SEQUENCES = 64
LOGITS = 1 << 23  # values of logits in one pass: 32 MiB


class SequenceScorer(PrefixScorer):
    """Scores rows with a model of llama.cpp.

    Args:
        settings: `threads` and `kv_cache` of a `Context`.
    """

    def __init__(self, model: LlamaModel, vocabulary: int, settings: Mapping[str, Any], capacity: int = CAPACITY):
        super().__init__(capacity, SEQUENCES)
        self._model = model
        self._settings = settings
        self._max_nodes = max(SEQUENCES, min(PASS, LOGITS // vocabulary))  # tokens in one pass
        self._context: Context | None = None
        self.forget()

    def forget(self) -> None:
        """See `PrefixScorer.forget`."""
        self._holders: dict[int, int] = {}  # a sequence that has each node
        self._ends: dict[int, int] = {}  # the last node of each sequence
        self._used_positions = 0  # positions, those included that no sequence has any more
        if self._context is None:
            return
        if self._context.positions > self._capacity + STEP:  # made for a text that is longer than usual
            self.close()
        else:
            self._context.clear()

    def close(self) -> None:
        """Frees the context."""
        if self._context is not None:
            self._context.close()
        self._context = None

    def computed(self, node: int) -> bool:
        """See `PrefixScorer.computed`."""
        return node in self._holders

    def compute(self, target_nodes: Sequence[int]) -> bool:
        """See `PrefixScorer.compute`."""
        tree = self.tree
        children: dict[int, list[int]] = {}
        for node in target_nodes:
            children.setdefault(tree.parents[node], []).append(node)
        branches = self._branches({*self.missing_ancestors(target_nodes), *children})
        nodes = sorted({node for branch in branches for node in branch.added})
        new_sequences = sum(not branch.takes_over for branch in branches)
        if self._used_positions and (
            self._used_positions + len(nodes) > self._capacity or len(self._ends) + new_sequences > SEQUENCES
        ):
            return False
        context = self._context_for(len(nodes))
        members: dict[int, list[int]] = {node: [] for node in nodes}
        for branch in branches:
            sequence = self._prepare_sequence(context, branch)
            for node in branch.added:
                members[node].append(sequence)
        for first in range(0, len(nodes), self._max_nodes):
            self._pass(context, nodes[first : first + self._max_nodes], members, children)
        self._used_positions += len(nodes)
        return True

    def _branches(self, required: set[int]) -> list[_Branch]:
        """Returns what to add to the sequences so that the required nodes are computed now."""
        tree, covered, used_sources = self.tree, set[int](), set[int]()
        branches = []
        for end in sorted(required, reverse=True):
            if end in covered:
                continue
            path = tree.path(end)
            covered.update(path)
            count = next(place for place, node in enumerate(path) if node in required)
            source = self._holders[path[count - 1]] if count else None
            takes_over = source is not None and source not in used_sources and self._ends[source] in set(path)
            if source is not None and takes_over:
                used_sources.add(source)
            branches.append(_Branch(path, count, source, takes_over))
        return branches

    def _prepare_sequence(self, context: Context, branch: _Branch) -> int:
        """Returns the sequence of a branch, with the nodes that it shares with its source."""
        if branch.source is not None and branch.takes_over:
            sequence = branch.source
            context.cut(sequence, branch.shared)
        else:
            sequence = next(number for number in range(SEQUENCES) if number not in self._ends)
            if branch.source is not None:
                context.copy(branch.source, sequence, branch.shared)
        self._ends[sequence] = branch.path[-1]
        self._holders.update(dict.fromkeys(branch.path, sequence))
        return sequence

    def _pass(
        self,
        context: Context,
        nodes: Sequence[int],
        members: Mapping[int, Sequence[int]],
        children: Mapping[int, Sequence[int]],
    ) -> None:
        """Computes nodes, and sets the log-probabilities of their children."""
        tree = self.tree
        context.branch(
            [tree.tokens[node] for node in nodes],
            [tree.depths[node] for node in nodes],
            [members[node] for node in nodes],
            [node in children for node in nodes],
        )
        self.passes += 1
        self.positions += len(nodes)
        for number, node in enumerate(nodes):
            if node in children:
                logprobs = _logprobs(context.logits(number), [tree.tokens[child] for child in children[node]])
                for child, value in zip(children[node], logprobs.tolist(), strict=True):
                    tree.logprobs[child] = value

    def _context_for(self, positions: int) -> Context:
        """Returns the context; makes a larger one if nothing is remembered and the positions need more capacity."""
        context = self._context
        if context is not None and context.positions >= self._used_positions + positions:
            return context
        if context is not None:
            context.close()
        self._context = Context(
            self._model,
            max(self._capacity, positions),
            SEQUENCES,
            longest=self._max_nodes,
            outputs=self._max_nodes,
            **self._settings,
        )
        return self._context


@dataclass(frozen=True)
class _Branch:
    """A sequence that is to be computed to its end."""

    path: Sequence[int]  # its nodes, from the first
    shared: int  # the number of first nodes that are there already
    source: int | None  # a sequence that has these
    takes_over: bool  # whether the source becomes this sequence, as it has no node beside this path

    @property
    def added(self) -> Sequence[int]:
        """The nodes to compute."""
        return self.path[self.shared :]


def _logprobs(logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    """Returns ln P of tokens float64 [n] from logits float32 [vocabulary]."""
    largest = logits.max()
    log_total = np.log(np.exp(logits - largest).sum(dtype=np.float64)) + float(largest)
    logprobs: np.ndarray = logits[tokens].astype(np.float64) - log_total
    return logprobs
