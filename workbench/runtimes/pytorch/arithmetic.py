"""The type that networks compute in: float32, or float64 for results to measure the rounding of others by.

Networks of this project take the type of their input. Those of transformers ask for float32 in places, whatever their
own type: in norms, in rotary positions, before a token is chosen. For lower types that is wider, for float64 it is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def network_dtype(named: str) -> torch.dtype:
    """The type for a network that hears: float64 where the setting `dtype` says so, for all other values float32."""
    return torch.float64 if named == "float64" else torch.float32


def name_of(dtype: torch.dtype) -> str:
    """A type as settings and traces call it."""
    return str(dtype).removeprefix("torch.")


def throughout(dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """What to compute a network of transformers' in, by its type: where that is float64, code that asks for float32
    gets float64; for all others nothing changes."""
    return _Float64() if dtype == torch.float64 else contextlib.nullcontext()


def widen_positions(network: Any) -> None:
    """Gives a network of transformers' that computes in float64 the rates of its rotary positions in that type.

    Its own are computed in float32 before any type is chosen.
    """
    body = network.model
    with throughout(torch.float64):
        body.rotary_emb = type(body.rotary_emb)(body.config)


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
