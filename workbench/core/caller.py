"""Who calls a function on large arrays: this process, or a separate one (`workbench.serving.child_processes`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Caller(Protocol):
    """Calls a function with arguments and returns its result, or raises its error.

    It must be possible to pickle function, arguments and result. What the function reports
    (`workbench.core.progress`) reaches the listener of that call.
    """

    def __call__(
        self, function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the function's result."""
        ...


def call_directly(
    function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Calls the function in this process and thread."""
    return function(*args, **kwargs)
