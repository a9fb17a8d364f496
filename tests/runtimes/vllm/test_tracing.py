"""What an engine cannot do in a trace is said before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.core.errors import Unavailable
from workbench.core.runtimes import RUNTIMES
from workbench.runtimes.vllm.tracing import check_not_substituted


def test_an_engine_goes_on_from_no_stages_but_its_own() -> None:
    check_not_substituted(None)
    for given in ({}, {"encoder.input": np.ones((2, 3))}):
        with pytest.raises(Unavailable, match=r"^vLLM goes through all layers by itself and takes no stages"):
            check_not_substituted(given)
    assert [name for name, runtime in RUNTIMES.items() if runtime.no_given] == ["vllm"]
