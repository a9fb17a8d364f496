"""Reads keys and values from the blocks of vLLM's cache, through the block table.

Each attention backend lays a block out in its own way, and some kernels reorder keys for their instructions. So the
layout is found by writing: the backend's own function puts known numbers into a spare block, and shows where each value
of a position is. A cache in another type than the model's, such as fp8, which has scales, is not read.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import Unavailable

_DIGIT = 128  # whole numbers below it are exact in every floating-point type
_CANNOT = "what vLLM's cache holds cannot be shown"


class BlockLayout:
    """Where a block of one attention's cache has the keys and values of its positions.

    Args:
        attention: vLLM's module of one layer's attention, with its cache.

    Raises `Unavailable` if the backend does not put every number into a place of its own.
    """

    def __init__(self, attention: Any):
        cache: Tensor = attention.kv_cache
        if getattr(attention, "kv_cache_dtype", "auto") not in ("auto", "bfloat16", "float16", "float32"):
            raise Unavailable(f"{_CANNOT}: it is in {attention.kv_cache_dtype}")
        if cache.ndim != 4 or not hasattr(attention.impl, "do_kv_cache_update"):
            raise Unavailable(f"{_CANNOT}: its attention backend ({type(attention.impl).__name__}) is not known here")
        _, heads, self.positions, joint_width = cache.shape
        self._shape = (self.positions, heads, joint_width // 2)
        self.key, self.value = (self._places(attention, index) for index in (0, 1))

    def _places(self, attention: Any, index: int) -> Tensor:
        """Returns the place in a block of each number of the keys (0) or values (1), as one flat list."""
        cache: Tensor = attention.kv_cache
        count = self._shape[0] * self._shape[1] * self._shape[2]
        place_codes = torch.arange(1, count + 1, device=cache.device)
        codes = torch.zeros(cache[0].numel(), dtype=torch.long, device=cache.device)
        unit = 1
        while unit <= count:
            scratch = torch.zeros_like(cache[:1].contiguous())
            digits = (place_codes // unit % _DIGIT).to(cache.dtype).reshape(self._shape)
            updates = [torch.zeros_like(digits), torch.zeros_like(digits)]
            updates[index] = digits
            slots = torch.arange(self.positions, device=cache.device)
            attention.impl.do_kv_cache_update(attention, *updates, scratch, slots)
            codes += scratch.reshape(-1).long() * unit
            unit *= _DIGIT
        filled = torch.nonzero(codes)[:, 0]
        places = filled[codes[filled].argsort()]
        if len(places) != count or not torch.equal(codes[places], place_codes):
            raise Unavailable(f"{_CANNOT}: its attention backend does not keep keys and values as they are")
        return places

    def read(self, cache: Tensor, blocks: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Returns keys and values of the first positions [count, heads, head width].

        Args:
            blocks: the numbers of the sequence's blocks, in order.
        """
        values = cache[blocks].reshape(len(blocks), -1)
        key, value = (values[:, places].reshape(-1, *self._shape[1:])[:count] for places in (self.key, self.value))
        return key, value


@functools.cache
def _layout_of(attention: Any) -> BlockLayout:
    return BlockLayout(attention)


def read_cache(attention: Any, table: Any, row: int, count: int) -> tuple[Tensor, Tensor]:
    """Returns keys and values of a sequence's first positions [count, heads, head width], as the cache holds them.

    Args:
        attention: vLLM's module of one layer's attention.
        table: its block table.
        row: the sequence's row in the table.

    Raises `Unavailable` if the cache cannot be read.
    """
    layout = _layout_of(attention)
    if int(table.block_size) != layout.positions:
        raise Unavailable(f"{_CANNOT}: its blocks are divided")
    block_count = -(-count // layout.positions)
    blocks = torch.from_numpy(table.get_numpy_array()[row, :block_count].astype("int64"))
    return layout.read(attention.kv_cache, blocks.to(attention.kv_cache.device), count)
