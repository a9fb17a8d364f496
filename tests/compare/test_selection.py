"""Which stages of two traces are compared, and the warnings about others."""

from __future__ import annotations

import numpy as np

from workbench.compare import compare
from workbench.trace.trace import Trace


def test_names_with_other_separators_are_pointed_out() -> None:
    """A candidate with a single shared name would otherwise pass without its layers."""
    values = np.ones((4, 3))
    reference = Trace({"encoder.layers.0": values, "encoder.layers.1": values, "logits": values}, {})
    candidate = Trace({"encoder_layers_0": values, "Encoder/Layers/1": values, "logits": values, "other": values}, {})
    warnings = compare(reference, candidate).warnings
    assert any("2 arrays of the candidate may be stages" in each and "for encoder.layers." in each for each in warnings)
    assert not any("may be stages" in each for each in compare(candidate, candidate).warnings)
