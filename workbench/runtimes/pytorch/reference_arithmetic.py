"""Opens a session that computes with unusual weights, or sums in an unusual order.

Such sessions give reference traces: in float64 with the weights of a candidate, and several times in its precision.
Only `trace` sums in the other order, each time in another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.core.settings import Settings
from workbench.runtimes.pytorch.checkpoints.finalise_weights import without_packing
from workbench.runtimes.pytorch.numerics.summation import Summation
from workbench.runtimes.pytorch.numerics.weight_override import override_weights, registered_networks


def open_session(
    open_family: Callable[[Path, str, Settings], Any], directory: Path, name: str, settings: Settings
) -> Any:
    """Opens a session by the function of a family, with the settings `weights` and `summation`.

    Raises `BadInput` if the weights cannot be used.
    """
    with registered_networks() as networks, without_packing():
        session = open_family(directory, name, settings)
    if settings.weights:
        override_weights(networks, settings.weights)
    if settings.summation:
        session.trace = _with_summation_order(session.trace, settings.summation)
    return session


def _with_summation_order(trace: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Returns the call with its sums in another order; each later call has a different order."""
    numbers = itertools.count(number)

    def trace_with_summation_order(*arguments: Any, **options: Any) -> Any:
        with Summation(next(numbers)):
            return trace(*arguments, **options)

    return trace_with_summation_order
