"""The KV cache in growing buffers equals transformers' cache, after growth, stacking and dropping of sequences."""

from __future__ import annotations

import torch
from transformers import DynamicCache, Qwen3Config

from workbench.runtimes.pytorch.language_models.growing_cache import MIN_GROWTH, growing_cache, keep_first, stack

CONFIG = Qwen3Config(num_hidden_layers=2)


def append(cache: object, lengths: list[int], batch: int = 1, seed: int = 0) -> list[torch.Tensor]:
    """Append keys and values of these lengths to both layers; returns the last output of the cache."""
    draw = torch.Generator().manual_seed(seed)
    outputs = []
    for length in lengths:
        outputs = []
        for layer in range(2):
            keys, values = torch.randn(2, batch, 3, length, 4, generator=draw)
            outputs += cache.update(keys, values, layer)  # type: ignore[attr-defined]
    return outputs


def test_growing_kv_cache_equals_transformers_dynamic_cache() -> None:
    lengths = [5, 1, 1, MIN_GROWTH, 1, 3 * MIN_GROWTH, 1]
    growing, dynamic = growing_cache(CONFIG), DynamicCache(config=CONFIG)
    for actual, expected in zip(append(growing, lengths), append(dynamic, lengths), strict=True):
        assert torch.equal(actual, expected)
    assert growing.get_seq_length() == dynamic.get_seq_length() == sum(lengths)


def test_second_sequence_can_be_stacked_and_dropped() -> None:
    first_cache, second_cache = growing_cache(CONFIG), growing_cache(CONFIG)
    first, second = append(first_cache, [4, 1]), append(second_cache, [5], seed=1)
    expected = [torch.cat(pair) for pair in zip(first, second, strict=True)]
    stack(first_cache, second_cache)
    stacked = append(first_cache, [1], batch=2, seed=2)
    assert all(torch.equal(actual[:, :, :5], previous) for actual, previous in zip(stacked, expected, strict=True))
    keep_first(first_cache)
    single = append(first_cache, [1], seed=3)
    assert all(torch.equal(actual[:, :, :6], previous[:1]) for actual, previous in zip(single, stacked, strict=True))
    assert all(torch.equal(layer.keys, keys) for layer, keys in zip(second_cache.layers, second[::2], strict=True))
