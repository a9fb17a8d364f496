"""Which stages of two traces are compared, and the warnings about others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.networks import META, computed
from workbench.compare import compare
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace


def test_names_with_other_separators_are_pointed_out() -> None:
    """A candidate with a single shared name would otherwise pass without its layers."""
    values = np.ones((4, 3))
    reference = Trace({"encoder.layers.0": values, "encoder.layers.1": values, "logits": values}, {})
    candidate = Trace({"encoder_layers_0": values, "Encoder/Layers/1": values, "logits": values, "other": values}, {})
    warnings = compare(reference, candidate).warnings
    assert any("2 arrays of the candidate may be stages" in each and "for encoder.layers." in each for each in warnings)
    assert not any("may be stages" in each for each in compare(candidate, candidate).warnings)


def test_unfinished_port_is_compared_as_far_as_it_goes() -> None:
    """Of a model with fewer layers, the stages behind the layers would tell."""
    reference, whole = computed(), dict(computed())
    first_layers = {stage: whole[stage] for stage in ("encoder.input", "encoder.layers.0", "encoder.layers.1")}
    assert len(compare(reference, Trace(first_layers, META)).stages) == 3
    assert len(compare(reference, Trace({"encoder.layers.0": whole["encoder.layers.0"]}, META)).stages) == 1
    with pytest.raises(BadInput, match=r"the reference has 8 encoder.layers and the candidate 2; expected"):
        compare(reference, Trace({**first_layers, "encoder.output": whole["encoder.output"]}, META))
    with pytest.raises(BadInput, match=r"the reference has 2 encoder.layers and the candidate 8; expected"):
        compare(Trace(first_layers, META), reference)
