"""Traces a recogniser that needs one pass: its network's stages, its tokens, its text, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.core.errors import NotFinite
from workbench.pipelines.gradients import GradientsOf, record_gradients
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.trace import StageFilter


def traced(
    recognise: Callable[[np.ndarray, Any, Recorder], Recognition],
    samples: np.ndarray,
    options: Any,
    requested_stages: StageFilter,
    given: Stages | None,
    gradients_of: GradientsOf | None = None,
) -> dict[str, np.ndarray]:
    """Returns the wanted stages of one pass over the samples: those of the network, then `tokens` and `text`.

    If values overflow in the network, there are no tokens, but its stages show where the overflow begins.

    Args:
        gradients_of: as in `workbench.pipelines.gradients.record_gradients`.
    """
    recorder = Recorder(requested_stages, given)
    try:
        recognition = recognise(samples, options, recorder)
    except NotFinite:
        return recorder.stages
    recorder.put("tokens", np.array(recognition.ids, dtype=np.int64))
    recorder.put("text", np.array(recognition.text))
    record_gradients(recorder, recognition.ids, gradients_of)
    return recorder.stages
