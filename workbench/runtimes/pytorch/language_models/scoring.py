"""Log-probabilities of rows of tokens by a network of transformers, in one pass for all new tokens of a call.

The rows' distinct beginnings form a tree. A pass computes its new nodes as one sequence, in which a node attends to its
ancestors alone; keys and values stay for later rows that begin alike. This file knows no text and no family.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.decoding.prefix_scores import PrefixScorer
from workbench.runtimes.pytorch.language_models.growing_cache import GrowingLayer
from workbench.runtimes.pytorch.numerics.arithmetic import keeping_float64

CAPACITY = 2048  # positions whose keys and values are remembered
MAX_ROWS = 1 << 12
LOGITS = 1 << 24  # values of logits at a time: 64 MiB in float32


class TreeScorer(PrefixScorer):
    """Scores rows with a network whose layers all attend to the whole of a row."""

    def __init__(self, network: Any, capacity: int = CAPACITY):
        super().__init__(capacity, MAX_ROWS)
        self._network = network
        self._device = network.get_input_embeddings().weight.device
        self.forget()

    def forget(self) -> None:
        """See `PrefixScorer.forget`."""
        from transformers import DynamicCache

        self._slots: dict[int, int] = {}  # places of nodes in the cache and in the states
        self._states: list[Tensor] = []  # after the final norm [hidden], by slot
        self._cache: Any = DynamicCache()
        self._cache.layers = [GrowingLayer() for _ in self._network.model.layers]

    def computed(self, node: int) -> bool:
        """See `PrefixScorer.computed`."""
        return node in self._slots

    @torch.inference_mode()
    def compute(self, target_nodes: Sequence[int]) -> bool:
        """See `PrefixScorer.compute`."""
        new_nodes = self.missing_ancestors(target_nodes)
        if self._slots and len(self._slots) + len(new_nodes) > self._capacity:
            return False
        if new_nodes:
            self._extend(new_nodes)
        tree = self.tree
        children: dict[int, list[int]] = {}
        for node in target_nodes:
            children.setdefault(tree.parents[node], []).append(node)
        parents = list(children)
        step = max(1, LOGITS // self._network.config.vocab_size)
        for first in range(0, len(parents), step):
            batch = parents[first : first + step]
            states = torch.stack([self._states[self._slots[parent]] for parent in batch])
            nodes = [node for parent in batch for node in children[parent]]
            rows = [row for row, parent in enumerate(batch) for _ in children[parent]]
            tokens = [tree.tokens[node] for node in nodes]
            for node, value in zip(nodes, self._logprobs(states, rows, tokens), strict=True):
                tree.logprobs[node] = value
        return True

    def _logprobs(self, states: Tensor, rows: list[int], tokens: list[int]) -> list[float]:
        """Returns ln P of each token after the state of its row."""
        with keeping_float64(self._network.dtype):
            logits = self._network.lm_head(states)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        log_totals = logits.logsumexp(-1).double()
        where = torch.tensor(rows, device=self._device)
        logprobs: list[float] = (logits[where, tokens].double() - log_totals[where]).tolist()
        return logprobs

    def _extend(self, nodes: Sequence[int]) -> None:
        """Computes nodes whose other ancestors are in the cache, and adds them to it."""
        tree, cached = self.tree, len(self._slots)
        visible = np.zeros((len(nodes), cached + len(nodes)), dtype=bool)
        for row, node in enumerate(nodes):
            parent = tree.parents[node]
            slot = self._slots.get(parent, -1)
            if slot >= cached:
                visible[row] = visible[slot - cached]
            elif slot >= 0:
                visible[row, [self._slots[ancestor] for ancestor in tree.path(parent)]] = True
            self._slots[node] = cached + row
            visible[row, cached + row] = True
        network = self._network
        mask = torch.zeros(visible.shape, dtype=network.dtype, device=self._device)
        mask.masked_fill_(torch.from_numpy(~visible).to(self._device), torch.finfo(network.dtype).min)
        with keeping_float64(network.dtype):
            hidden = network.model(
                input_ids=torch.tensor([[tree.tokens[node] for node in nodes]], device=self._device),
                position_ids=torch.tensor([[tree.depths[node] for node in nodes]], device=self._device),
                attention_mask=mask[None, None],
                past_key_values=self._cache,
                use_cache=True,
            ).last_hidden_state[0]
        self._states += hidden.unbind()
        self.passes += 1
        self.positions += len(nodes)


@torch.inference_mode()
def logprobs_of_row(network: Any, row: Sequence[int]) -> np.ndarray:
    """Returns ln P of each token of one row after the first, by an ordinary pass over it: float64 [tokens - 1]."""
    device = network.get_input_embeddings().weight.device
    ids = torch.tensor([row], device=device)
    with keeping_float64(network.dtype):
        hidden = network.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state[0]
        step = max(1, LOGITS // network.config.vocab_size)
        parts = []
        for first in range(0, len(hidden), step):
            logits = network.lm_head(hidden[first : first + step])
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            token_logits = logits.gather(-1, ids[0, 1 + first : 1 + first + len(logits), None])[:, 0]
            parts.append(token_logits.double() - logits.logsumexp(-1).double())
    logprobs: np.ndarray = torch.cat(parts).cpu().numpy()
    return logprobs


def longest_shared_row(config: Any) -> int | None:
    """Returns the most tokens of a row that a `TreeScorer` may compute with others; None for any number.

    Some layer's attention may be limited to a window, and rotary rates may depend on the length of the pass.
    """
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    limits = [int(window)] if window and ("sliding_attention" in kinds if kinds else True) else []
    rotary = config.rope_parameters or {}
    if rotary.get("rope_type") in ("dynamic", "longrope"):
        limits.append(int(rotary.get("original_max_position_embeddings") or config.max_position_embeddings))
    return min(limits, default=None)
