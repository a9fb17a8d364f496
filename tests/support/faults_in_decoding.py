"""Faults that show only while decoding, planted into a language model of transformers: positions, caches and masks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

AT = 2  # the step from which a fault of one step acts
LAYER = 1


@contextlib.contextmanager
def _changed_inputs(network: Any, change: Callable[[dict[str, Any], int], None]) -> Iterator[None]:
    """Changes the arguments of every decoding pass; `change` gets them and the number of the step."""
    step = 0

    def enters(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        nonlocal step
        step = step + 1 if kwargs.get("input_ids") is not None else 0
        if step:
            change(kwargs, step)
        return args, kwargs

    hook = network.register_forward_pre_hook(enters, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def positions_off_by_one(network: Any) -> Any:
    """Every generated token is one position too late, so that the prompt's pass is right."""

    def change(inputs: dict[str, Any], step: int) -> None:
        inputs["position_ids"] = inputs["position_ids"] + 1

    return _changed_inputs(network, change)


def mask_without_a_position(network: Any) -> Any:
    """From a step on, the tokens do not see one position in the middle, as after a wrong resume."""

    def change(inputs: dict[str, Any], step: int) -> None:
        if step >= AT:
            count = inputs["past_key_values"].get_seq_length() + 1
            inputs["attention_mask"] = torch.ones(1, count, dtype=torch.long)
            inputs["attention_mask"][0, count // 2] = 0

    return _changed_inputs(network, change)


def _updates(change: Callable[[Tensor, Tensor, int], None]) -> Callable[[Any], Any]:
    @contextlib.contextmanager
    def planted(network: Any) -> Iterator[None]:
        from transformers import DynamicCache

        update = DynamicCache.update

        def updated(self: Any, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
            found = update(self, keys, values, layer_idx, *args, **kwargs)
            if keys.shape[2] == 1:
                change(self.layers[layer_idx].keys, self.layers[layer_idx].values, layer_idx)
            return found

        DynamicCache.update = updated  # type: ignore[method-assign]
        try:
            yield
        finally:
            DynamicCache.update = update  # type: ignore[method-assign]

    return planted


def _stale(keys: Tensor, values: Tensor, layer: int) -> None:
    if layer == LAYER:
        keys[:, :, -1] = keys[:, :, -2]


def _rounded(keys: Tensor, values: Tensor, layer: int) -> None:
    for held in (keys, values) if layer >= LAYER else ():
        held.copy_(held.half().to(held.dtype))


stale_cache_row = _updates(_stale)
"""The key of a generated token is that of the position before it, in one layer."""

cache_in_half_precision = _updates(_rounded)
"""While decoding, keys and values of all layers but the first are rounded to float16."""

FAULTS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "positions off by one": (positions_off_by_one, "steps.1.llm.layers.0", "steps.1.llm.layers.0.attention.query_rope"),
    "mask without a position": (
        mask_without_a_position,
        f"steps.{AT}.llm.layers.0",
        f"steps.{AT}.llm.layers.0.attention.weights",
    ),
    "stale cache row": (stale_cache_row, f"steps.1.llm.layers.{LAYER}", f"steps.1.llm.layers.{LAYER}.cache.key"),
    "cache in half precision": (
        cache_in_half_precision,
        f"steps.1.llm.layers.{LAYER}",
        f"steps.1.llm.layers.{LAYER}.cache.key",
    ),
}
"""For each fault: what plants it, the first stage in error, and the first in error with the inside of layers."""
