"""The type that networks compute in: float32, or float64 for results to measure the rounding of others by.

Networks of this project take the type of their input. Those of transformers ask for float32 in places, whatever their
own type: in norms, in rotary positions, before a token is chosen. For lower types that is wider, for float64 it is not.
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


def network_dtype(named: str, stepwise: bool = False) -> torch.dtype:
    """The type for a network that hears: float64 where the setting `dtype` says so, for all other values float32, but
    where the setting `stepwise` is on."""
    if stepwise and named in HALVES:
        return HALVES[named]
    return torch.float64 if named == "float64" else torch.float32


def array_of(tensor: Tensor) -> np.ndarray:
    """A tensor's values; of bfloat16, which numpy does not have, in float32."""
    found: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
    return found


def name_of(dtype: torch.dtype) -> str:
    """A type as settings and traces call it."""
    return str(dtype).removeprefix("torch.")


def throughout(dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """What to compute a network of transformers' in, by its type: where that is float64, code that asks for float32
    gets float64; for all others nothing changes."""
    return _Float64() if dtype == torch.float64 else contextlib.nullcontext()


def in_steps(dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """What to compute a network of ours in, by its type: in half precision, attention is written out, and rounds its
    scores and its weights; else nothing changes."""
    return _Stepwise() if dtype in HALVES.values() else contextlib.nullcontext()


def widen_positions(network: Any) -> None:
    """Gives a network of transformers' that computes in float64 the rates of its rotary positions in that type.

    Its own are computed in float32 before any type is chosen.
    """
    body = network.model
    with throughout(torch.float64):
        body.rotary_emb = type(body.rotary_emb)(body.config)


class _Stepwise(TorchFunctionMode):
    """Whoever asks torch for attention, in this thread, gets it in steps, each rounded to the type."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        known = kwargs or {}
        return _attention(*args, **known) if func is F.scaled_dot_product_attention else func(*args, **known)


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Attention as `torch.nn.functional.scaled_dot_product_attention` has it, of what networks here ask it for."""
    scores = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        hidden = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if hidden else scores + attn_mask
    return scores.softmax(dim=-1) @ v


class _Float64(TorchFunctionMode):
    """Whoever asks torch for float32, in this thread, gets float64."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        asked = {name: _wider(value) for name, value in (kwargs or {}).items()}
        return (Tensor.double if func is Tensor.float else func)(*map(_wider, args), **asked)


def _wider(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
