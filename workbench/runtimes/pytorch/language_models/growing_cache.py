"""Keys and values of a sequence in buffers that grow: a new position is written in place.

Transformers' own growing cache copies all earlier positions for each new one. This file knows no family.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

MIN_GROWTH = 256  # positions that a buffer grows by, at least


class GrowingLayer(DynamicLayer):
    """The keys and values of one layer [batch, heads, positions, width], views of larger buffers."""

    keys: Tensor
    values: Tensor
    _buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Appends positions; returns all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        first = self.get_seq_length()
        end = first + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            room = max(2 * first, end + MIN_GROWTH)
            self._buffers = self._grow(self.keys, key_states, room), self._grow(self.values, value_states, room)
        keys, values = self._buffers
        keys[:, :, first:end], values[:, :, first:end] = key_states, value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    @staticmethod
    def _grow(old: Tensor | None, example: Tensor, room: int) -> Tensor:
        buffer = example.new_empty(*example.shape[:2], room, example.shape[-1])
        if old is not None and old.numel():
            buffer[:, :, : old.shape[-2]] = old
        return buffer

    def replace(self, keys: Tensor, values: Tensor) -> None:
        """Replaces all keys and values."""
        self.keys, self.values, self._buffers = keys, values, None


def growing_cache(config: Any) -> Any:
    """Returns an empty cache for a network of transformers with full attention in every layer."""
    cache: Any = DynamicCache(config=config)
    cache.layers = [GrowingLayer() for _ in cache.layers]
    return cache


def stack(cache: Any, addition: Any) -> None:
    """Adds the sequences of another cache of the same length as further batch rows."""
    for layer, other_layer in zip(cache.layers, addition.layers, strict=True):
        layer.replace(torch.cat([layer.keys, other_layer.keys]), torch.cat([layer.values, other_layer.values]))


def keep_first(cache: Any) -> None:
    """Drops all batch rows but the first."""
    for layer in cache.layers:
        layer.replace(layer.keys[:1].clone(), layer.values[:1].clone())
