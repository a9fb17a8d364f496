"""Traces a recogniser that needs one pass: its network's stages, its tokens and its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.pipelines.speech_session import Recognition
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.trace import StageFilter


def traced(
    recognise: Callable[[np.ndarray, Any, Recorder], Recognition],
    samples: np.ndarray,
    options: Any,
    wanted: StageFilter,
    given: Stages | None,
) -> dict[str, np.ndarray]:
    """Returns the wanted stages of one pass over the samples: those of the network, then `tokens` and `text`."""
    recorder = Recorder(wanted, given)
    recognition = recognise(samples, options, recorder)
    recorder.put("tokens", np.array(recognition.ids, dtype=np.int64))
    recorder.put("text", np.array(recognition.text))
    return recorder.stages
