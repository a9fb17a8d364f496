"""A result, or the sentence that says why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from workbench.core.errors import Cancelled, WorkbenchError
from workbench.core.visitors import told

Result = TypeVar("Result")


def result_or_reason(make: Callable[[], Result]) -> tuple[Result | None, str]:
    """Returns the result of `make`, or None and the sentence of its error. Raises `Cancelled`."""
    try:
        return make(), ""
    except Cancelled:
        raise
    except WorkbenchError as error:
        return None, told(error)
