"""The trace of a recogniser that hears in one pass: its network's stages, and what was heard."""

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
    """The wanted stages of one pass over the samples, `tokens` and `text` behind those of the network."""
    recorder = Recorder(wanted, given)
    heard = recognise(samples, options, recorder)
    recorder.put("tokens", np.array(heard.ids, dtype=np.int64))
    recorder.put("text", np.array(heard.text))
    return recorder.stages
