"""How work is called whose arrays may be large: here, or by whoever has a process of its own for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Call(Protocol):
    """Calls a function with arguments and returns its result, or raises its error.

    Function, arguments and result can be pickled. What the function reports (`workbench.core.progress`) reaches the
    listener of the caller.
    """

    def __call__(self, function: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """Returns the function's result."""
        ...


def here(function: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """Calls the function in this process and thread."""
    return function(*args, **kwargs)
