"""Log-probabilities of rows of tokens in an engine: each row is a prompt that vLLM scores. This file knows no text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbench.runtimes.vllm.engine.engine import Engine
from workbench.runtimes.vllm.engine.running_requests import Finished
from workbench.runtimes.vllm.requests.request import Request

if TYPE_CHECKING:
    from vllm import SamplingParams


def score_rows(engine: Engine, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Returns ln P of each token of a row after the first, given all before it: float64 [tokens - 1] each.

    All rows go to the engine at once. Raises the same errors as `Engine.stream`.
    """
    stream = engine.follow([Request(row) for row in rows], [_params() for _ in rows])
    while True:
        try:
            next(stream)
        except StopIteration as done:
            ends: list[Finished] = done.value
            break
    return [
        np.array([step[token].logprob for token, step in zip(row[1:], end.prompt_logprobs[1:], strict=True)])
        for row, end in zip(rows, ends, strict=True)
    ]


def _params() -> SamplingParams:
    """Returns vLLM's parameters of a request whose prompt is to be scored; it cannot write less than one token."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=1,
        ignore_eos=True,
        temperature=0.0,
        prompt_logprobs=0,  # of the prompt's own tokens alone
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
