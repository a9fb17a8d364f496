"""Observes calls of torch functions that a network makes inside one of its modules, such as fused attention.

Hooks of modules show what enters and leaves a module. Some values have no module: the queries that enter
`scaled_dot_product_attention`, or the two halves of a gate. This file knows no networks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode

Function = Callable[..., Any]
Observer = Callable[[Function, tuple[Any, ...], dict[str, Any]], Any]
"""Takes a function with its arguments, calls it, and returns its result."""


class CallWatch(TorchFunctionMode):
    """A mode in which chosen functions go through an observer while a chosen module runs; others run as they are."""

    def __init__(self) -> None:
        super().__init__()
        self._scopes: list[Mapping[Function, Observer]] = []

    @contextlib.contextmanager
    def observing(self, module: nn.Module, observers: Mapping[Function, Observer]) -> Iterator[None]:
        """Observes the functions in all calls of a module, for the block."""

        def enter(*_: Any) -> None:
            self._scopes.append(observers)

        def leave(*_: Any) -> None:
            self._scopes.pop()

        handles = [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        observer = self._scopes[-1].get(func) if self._scopes else None
        keywords = dict(kwargs or {})
        return func(*args, **keywords) if observer is None else observer(func, args, keywords)
