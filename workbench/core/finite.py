"""Refuses values of a network that are not finite, because its output then means nothing."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import NotFinite


def not_finite_error(values: str) -> NotFinite:
    """Returns the error for such values; `values` is the middle of its sentence, such as "logits are NaN"."""
    return NotFinite(
        f"the network's {values}: values overflow in it, or its weights are damaged; a trace shows the first stage "
        "with such values"
    )


def nan_logits_error() -> NotFinite:
    """Returns the error for logits that are NaN, because no largest logit exists then."""
    return not_finite_error("logits are NaN")


def check_logits(logits: np.ndarray) -> None:
    """Raises `NotFinite` if one of the logits is NaN.

    Args:
        logits: an array of any shape, with the vocabulary last. The largest logit of each row is enough, because it is
            NaN if the row has a NaN.
    """
    if np.isnan(logits.max(axis=-1, initial=-np.inf)).any():
        raise nan_logits_error()
