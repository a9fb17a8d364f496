"""Trace requests that an engine cannot serve are refused before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.core.errors import Unavailable
from workbench.core.runtimes import RUNTIMES
from workbench.runtimes.vllm.capture.tracing import check_not_substituted


def test_trace_from_given_stages_is_unavailable_on_vllm() -> None:
    check_not_substituted(None)
    for stages in ({}, {"encoder.input": np.ones((2, 3))}):
        with pytest.raises(Unavailable, match=r"^vLLM goes through all layers by itself and takes no stages"):
            check_not_substituted(stages)
    assert [name for name, runtime in RUNTIMES.items() if runtime.substitution_unsupported] == ["vllm"]
