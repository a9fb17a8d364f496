"""Captures the stages of a prompt's pass in an engine's worker process."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.errors import NotFinite, Unavailable
from workbench.core.runtimes import RUNTIMES
from workbench.decoding.generation import Decoding
from workbench.runtimes.vllm.capture.rows import FollowedIds, capturing, read_capture
from workbench.runtimes.vllm.engine.engine import Engine
from workbench.runtimes.vllm.requests.request import Request
from workbench.runtimes.vllm.requests.sampling import sampling_params
from workbench.trace.recorder import Stages
from workbench.trace.steps import ForcedDecoding
from workbench.trace.trace import StageFilter

if TYPE_CHECKING:
    from vllm import SamplingParams

_numbers = count(1)  # numbers of captures


def check_not_substituted(given: Stages | None) -> None:
    """Raises `Unavailable` if stages are substituted: an engine computes all layers in one pass."""
    if given is not None:
        raise Unavailable(RUNTIMES["vllm"].substitution_unsupported)


def follow_steps(engine: Engine, request: Request, forced: ForcedDecoding) -> None:
    """Records the traced steps of a forced decoding after a prompt. The engine writes its ids, one in each step.

    Raises the same errors as `prompt_stages`.
    """
    number = next(_numbers)
    followed = FollowedIds(forced.fed_ids, forced.steps)
    patterns = forced.recorder.wanted.patterns if isinstance(forced.recorder.wanted, StageFilter) else ("*",)
    with capturing(engine.call, number, patterns, followed):
        params = sampling_params(Decoding((), max_new_tokens=forced.last + 1), 0, number)
        _follow(engine, replace(request, capture=number), params)
        for stage, array in read_capture(engine.call, number).items():
            forced.recorder.put(stage, array)


def prompt_stages(
    engine: Engine, request: Request, requested_stages: StageFilter, extra: Mapping[str, Any] | None = None
) -> dict[str, np.ndarray]:
    """Returns the wanted stages of one pass over a prompt, in the order of the computation.

    These are the audio tower's stages, then `llm.*` and `logits`. Other requests may run at the same time. Raises the
    same errors as `Engine.stream`, and `Unavailable` if the engine cannot capture.

    Args:
        extra: more of vLLM's `extra_args` of the request.
    """
    number = next(_numbers)
    with capturing(engine.call, number, requested_stages.patterns):
        params = sampling_params(Decoding((), max_new_tokens=1), 0, number)
        params.extra_args = {**(params.extra_args or {}), **(extra or {})}
        _follow(engine, replace(request, capture=number), params)
        return read_capture(engine.call, number)


def _follow(engine: Engine, request: Request, params: SamplingParams) -> None:
    """Waits until a request has ended. If values overflow in it, its stages show where."""
    with contextlib.suppress(NotFinite):
        for _ in engine.follow([request], [params]):
            pass
