"""The type that networks compute in: float32, or float64 for a reference to measure the rounding of other types.

Networks of this project compute in the type of their input. Networks of transformers convert to float32 in places,
whatever their own type: in norms, in rotary positions, before a token is chosen. That is wider than the lower types,
but narrower than float64.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

HALVES: Mapping[str, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def network_dtype(name: str, stepwise: bool) -> torch.dtype:
    """Returns the type for an audio encoder or recogniser network: float64 if the setting `dtype` is float64, else
    float32.

    With the setting `stepwise`, half-precision types are returned as named.
    """
    if stepwise and name in HALVES:
        return HALVES[name]
    return torch.float64 if name == "float64" else torch.float32


def array_of(tensor: Tensor) -> np.ndarray:
    """Returns a tensor's values as an array; bfloat16, which numpy does not have, becomes float32."""
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
    return array


def name_of(dtype: torch.dtype) -> str:
    """Returns the name of a type in settings and traces."""
    return str(dtype).removeprefix("torch.")


def keeping_float64(dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Returns the context to run a network of transformers in: for float64, code that asks for float32 gets float64.

    For all other types the context does nothing.
    """
    return _Float64() if dtype == torch.float64 else contextlib.nullcontext()


def attention_in_steps(dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Returns the context to run a network of this project in: half precision gets attention written out in steps.

    Each step rounds its scores and its weights. For other types the context does nothing.
    """
    return _Stepwise() if dtype in HALVES.values() else contextlib.nullcontext()


def widen_positions(network: Any) -> None:
    """Recomputes the rates of the rotary positions in float64, for a network of transformers that computes in float64.

    Transformers computes them in float32 before the type is chosen.
    """
    body = network.model
    with keeping_float64(torch.float64):
        body.rotary_emb = type(body.rotary_emb)(body.config)


def forget_longer_passes(network: Any) -> None:
    """Makes a pass of a network of transformers independent of the passes before it.

    Rotary rates of the type "dynamic" grow with the longest pass so far, and stay so for the shorter ones after it.
    """
    body = network.model
    if "dynamic" not in (body.config.rope_parameters or {}).get("rope_type", ""):
        return

    def reset_positions(_module: Any, _inputs: Any, keywords: Mapping[str, Any]) -> None:
        cache, rotary = keywords.get("past_key_values"), body.rotary_emb
        if cache is None or not cache.get_seq_length():
            rotary.max_seq_len_cached = rotary.original_max_seq_len
            rotary.inv_freq = rotary.original_inv_freq

    body.register_forward_pre_hook(reset_positions, with_kwargs=True)


class _Stepwise(TorchFunctionMode):
    """A mode in which attention in this thread runs in steps, each rounded to the type."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = kwargs or {}
        return _attention(*args, **keywords) if func is F.scaled_dot_product_attention else func(*args, **keywords)


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Returns attention as `torch.nn.functional.scaled_dot_product_attention` computes it, for the arguments used in
    this project.
    """
    scores = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        hidden = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if hidden else scores + attn_mask
    return scores.softmax(dim=-1) @ v


class _Float64(TorchFunctionMode):
    """A mode in which torch code in this thread gets float64 when it asks for float32."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        wide_kwargs = {name: _wider(value) for name, value in (kwargs or {}).items()}
        return (Tensor.double if func is Tensor.float else func)(*map(_wider, args), **wide_kwargs)


def _wider(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
