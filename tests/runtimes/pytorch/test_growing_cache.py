"""The KV cache in growing buffers equals transformers' cache, after growth, stacking and dropping of sequences."""

from __future__ import annotations

import torch
from transformers import DynamicCache, Qwen3Config

from workbench.runtimes.pytorch.growing_cache import LEAST, growing_cache, keep_first, stack

CONFIG = Qwen3Config(num_hidden_layers=2)


def fed(cache: object, lengths: list[int], batch: int = 1, seed: int = 0) -> list[torch.Tensor]:
    """What the cache returns last, after keys and values of these lengths have been appended to both layers."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for length in lengths:
        found = []
        for layer in range(2):
            keys, values = torch.randn(2, batch, 3, length, 4, generator=draw)
            found += cache.update(keys, values, layer)  # type: ignore[attr-defined]
    return found


def test_growing_kv_cache_equals_transformers_dynamic_cache() -> None:
    lengths = [5, 1, 1, LEAST, 1, 3 * LEAST, 1]
    own, other = growing_cache(CONFIG), DynamicCache(config=CONFIG)
    for one, two in zip(fed(own, lengths), fed(other, lengths), strict=True):
        assert torch.equal(one, two)
    assert own.get_seq_length() == other.get_seq_length() == sum(lengths)


def test_second_sequence_can_be_stacked_and_dropped() -> None:
    one, two = growing_cache(CONFIG), growing_cache(CONFIG)
    first, second = fed(one, [4, 1]), fed(two, [5], seed=1)
    expected = [torch.cat(pair) for pair in zip(first, second, strict=True)]
    stack(one, two)
    both = fed(one, [1], batch=2, seed=2)
    assert all(torch.equal(found[:, :, :5], own) for found, own in zip(both, expected, strict=True))
    keep_first(one)
    alone = fed(one, [1], seed=3)
    assert all(torch.equal(found[:, :, :6], own[:1]) for found, own in zip(alone, both, strict=True))
    assert all(torch.equal(layer.keys, kept) for layer, kept in zip(two.layers, second[::2], strict=True))
