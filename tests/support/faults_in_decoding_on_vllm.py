"""Faults that show only while decoding, planted into the attention of a model that vLLM runs in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from workbench.runtimes.vllm.capture.cache_blocks import read_cache

AT = 2  # the step from which a fault of one step acts
LAYER = 1


@contextlib.contextmanager
def positions_off_by_one(layers: Any) -> Iterator[None]:
    """Every generated token is one position too late."""

    def enters(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if len(kwargs["positions"]) == 1:
            kwargs["positions"] = kwargs["positions"] + 1
        return args, kwargs

    with contextlib.ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.self_attn.register_forward_pre_hook(enters, with_kwargs=True).remove)
        yield


@contextlib.contextmanager
def _updates(layers: Any, change: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for number, layer in enumerate(layers):
            impl = layer.self_attn.attn.impl

            def update(
                module: Any,
                key: Tensor,
                value: Tensor,
                *rest: Any,
                number: int = number,
                own: Any = impl.do_kv_cache_update,
            ) -> None:
                changed = change(number, key, value) if len(key) == 1 else (key, value)
                own(module, *changed, *rest)

            patch.setattr(impl, "do_kv_cache_update", update, raising=False)
        yield


def stale_cache_row(layers: Any) -> Any:
    """In one layer, keys and values of generated tokens are not written: their rows stay as in a fresh block."""
    return _updates(layers, lambda number, key, value: (key * 0, value * 0) if number == LAYER else (key, value))


def cache_in_half_precision(layers: Any) -> Any:
    """While decoding, keys and values of all layers but the first are rounded to float16."""

    def change(number: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return (key.half().float(), value.half().float()) if number >= LAYER else (key, value)

    return _updates(layers, change)


@contextlib.contextmanager
def mask_without_a_position(layers: Any, table: Any) -> Iterator[None]:
    """From a step on, generated tokens do not see one position in the middle, as after a wrong resume."""
    with pytest.MonkeyPatch.context() as patch:
        for layer in layers:
            attention = layer.self_attn.attn
            steps = {"count": 0}

            def forward(
                module: Any,
                query: Tensor,
                key: Tensor,
                value: Tensor,
                cache: Tensor,
                metadata: Any,
                output: Tensor,
                *rest: Any,
                attention: Any = attention,
                steps: dict[str, int] = steps,
                own: Any = attention.impl.forward,
                **more: Any,
            ) -> Tensor:
                found: Tensor = own(module, query, key, value, cache, metadata, output, *rest, **more)
                if metadata is None or len(query) != 1:
                    return found
                steps["count"] += 1
                if steps["count"] >= AT:
                    count = int(metadata.seq_lens[0])
                    keys, values = read_cache(attention, table, 0, count)
                    seen = [position for position in range(count) if position != count // 2]
                    shared = query.shape[1] // keys.shape[1]
                    k, v = (each[seen].repeat_interleave(shared, dim=1) for each in (keys, values))
                    weights = torch.einsum("hd,nhd->hn", query[0] * attention.impl.scale, k).softmax(-1)
                    output[0] = torch.einsum("hn,nhd->hd", weights, v)
                return found

            patch.setattr(attention.impl, "forward", forward, raising=False)
        yield


FAULTS = {
    "positions off by one": ("steps.1.llm.layers.0", "steps.1.llm.layers.0.attention.query_rope"),
    "mask without a position": (f"steps.{AT}.llm.layers.0", f"steps.{AT}.llm.layers.0.attention.context"),
    "stale cache row": (f"steps.1.llm.layers.{LAYER}", f"steps.1.llm.layers.{LAYER}.cache.key"),
    "cache in half precision": ("", f"steps.1.llm.layers.{LAYER}.cache.key"),
}
"""For each fault: the first stage in error, and the first in error with the inside of layers.

After a long prompt, a few rounded rows among many change no whole layer by more than noise."""


def planted(fault: str, layers: Any, table: Any) -> Any:
    """Returns the block in which a fault is in place."""
    if fault == "mask without a position":
        return mask_without_a_position(layers, table)
    plant: Any = {
        "positions off by one": positions_off_by_one,
        "stale cache row": stale_cache_row,
        "cache in half precision": cache_in_half_precision,
    }[fault]
    return plant(layers)
