"""Faults that show only while decoding, planted into passes of llama.cpp by overwriting what it has computed."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from workbench.runtimes.gguf.graphs.ggml import TensorStruct, load_library
from workbench.runtimes.gguf.llama_cpp.context import Context
from workbench.runtimes.gguf.llama_cpp.decoding_steps import StepsWatch

AT = 2  # the step from which a fault of one step acts
LAYER = 1
ROPE_BASE = 10000.0


@contextlib.contextmanager
def _overwriting(change: Callable[[str, str, np.ndarray], bool]) -> Iterator[None]:
    """Calls `change` with name, operation and values of every tensor of decoding steps; it changes the values in place
    and says so.
    """
    library, see = load_library(), StepsWatch.see

    def changed(self: StepsWatch, pointer: int, asks: bool, data: Any) -> bool:
        if asks:
            see(self, pointer, asks, data)
            return True
        tensor = TensorStruct.from_address(pointer)
        name, operation = tensor.name.decode(), library.op_desc(pointer).decode()
        if self._pass_watch is not None and tensor.type == 0 and (operation in ("ROPE", "SET_ROWS")):
            values = np.empty(tuple(tensor.ne)[::-1], np.float32)
            library.backend_tensor_get(pointer, ctypes.c_void_p(values.ctypes.data), 0, values.nbytes)
            if change(name, operation, values):
                library.backend_tensor_set(pointer, ctypes.c_void_p(values.ctypes.data), 0, values.nbytes)
        return see(self, pointer, asks, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepsWatch, "see", changed)
        yield


def positions_off_by_one() -> Any:
    """Queries and keys of generated tokens are turned for one position more."""

    def change(name: str, operation: str, values: np.ndarray) -> bool:
        if operation != "ROPE":
            return False
        half = values.shape[-1] // 2
        angles = ROPE_BASE ** (-np.arange(half) / half)
        first, second = values[..., :half].copy(), values[..., half:].copy()
        values[..., :half] = first * np.cos(angles) - second * np.sin(angles)
        values[..., half:] = second * np.cos(angles) + first * np.sin(angles)
        return True

    return _overwriting(change)


def stale_cache_row() -> Any:
    """The key of a generated token is that of the position before it, in one layer."""
    seen = {"count": 0}

    def change(name: str, operation: str, values: np.ndarray) -> bool:
        if operation != "SET_ROWS" or not name.startswith(f"cache_k_l{LAYER} "):
            return False
        rows = values.reshape(-1, values.shape[-1])
        last = int(np.flatnonzero(np.abs(rows).sum(axis=1))[-1])
        rows[last] = rows[last - 1]
        seen["count"] += 1
        return True

    return _overwriting(change)


def cache_in_half_precision() -> Any:
    """While decoding, the keys of all layers but the first are rounded to float16."""

    def change(name: str, operation: str, values: np.ndarray) -> bool:
        if operation != "SET_ROWS" or not name.startswith("cache_k_l") or name.startswith("cache_k_l0 "):
            return False
        values[...] = values.astype(np.float16)
        return True

    return _overwriting(change)


@contextlib.contextmanager
def mask_without_a_position() -> Iterator[None]:
    """From a step on, one position in the middle is gone from the sequence, as after a wrong resume."""
    step, count = Context.step, 0

    def without(self: Context, tokens: Any, positions: np.ndarray, sequences: np.ndarray) -> None:
        nonlocal count
        count += 1
        if count == AT:
            middle = int(positions[0]) // 2
            self._functions.llama_memory_seq_rm(self._memory, 0, middle, middle + 1)
        step(self, tokens, positions, sequences)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Context, "step", without)
        yield


FAULTS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "positions off by one": (
        positions_off_by_one,
        "steps.1.llm.layers.0",
        "steps.1.llm.layers.0.attention.query_rope",
    ),
    "mask without a position": (
        mask_without_a_position,
        f"steps.{AT}.llm.layers.0",
        f"steps.{AT}.llm.layers.0.cache.key",
    ),
    "stale cache row": (stale_cache_row, f"steps.1.llm.layers.{LAYER}", f"steps.1.llm.layers.{LAYER}.cache.key"),
    "cache in half precision": (
        cache_in_half_precision,
        f"steps.1.llm.layers.{LAYER}",
        f"steps.1.llm.layers.{LAYER}.cache.key",
    ),
}
"""For each fault: what plants it, the first stage in error, and the first in error with the inside of layers."""
