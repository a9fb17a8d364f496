"""Captures the stages of a prompt's pass in an engine's worker process."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np

from workbench.core.errors import Unavailable
from workbench.core.runtimes import RUNTIMES
from workbench.decoding.generation import Decoding
from workbench.runtimes.vllm.capture import captured, capturing
from workbench.runtimes.vllm.engine import Engine
from workbench.runtimes.vllm.request import Request
from workbench.trace.recorder import Stages
from workbench.trace.trace import StageFilter

_numbers = count(1)  # numbers of captures


def check_not_substituted(given: Stages | None) -> None:
    """Raises `Unavailable` if stages are substituted: an engine computes all layers in one pass."""
    if given is not None:
        raise Unavailable(RUNTIMES["vllm"].no_given)


def prompt_stages(engine: Engine, request: Request, wanted: StageFilter) -> dict[str, np.ndarray]:
    """Returns the wanted stages of one pass over a prompt, in the order of the computation.

    These are the audio tower's stages, then `llm.*` and `logits`. Other requests may run at the same time. Raises the
    same errors as `Engine.stream`, and `Unavailable` if the engine cannot capture.
    """
    number = next(_numbers)
    with capturing(engine.call, number, wanted.patterns):
        for _ in engine.stream([replace(request, capture=number)], [Decoding((), max_new_tokens=1)]):
            pass
        return captured(engine.call, number)
