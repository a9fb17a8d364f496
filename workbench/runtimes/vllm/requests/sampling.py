"""The options for choosing tokens, in vLLM's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.errors import BadInput, message_of
from workbench.decoding.generation import Decoding
from workbench.runtimes.vllm.capture.rows import EXTRA_ARGUMENT

if TYPE_CHECKING:
    from vllm import SamplingParams

MIN_TOP_P = 1e-6  # selects the likeliest token alone; vLLM does not accept 0


def known_top_p(top_p: float) -> float:
    """Returns the nearest value that vLLM accepts."""
    return min(max(top_p, MIN_TOP_P), 1.0)


def token_limit(decoding: Decoding, row: int) -> int:
    """Returns the most new tokens of one of the rows of a decoding."""
    limits = decoding.max_new_tokens
    return int(limits[row]) if isinstance(limits, np.ndarray) else int(limits)


def sampling_params(decoding: Decoding, row: int, capture: int = 0) -> SamplingParams:
    """Returns vLLM's parameters for one of the rows; raises `BadInput` for options that its engine does not support.

    Args:
        capture: the number of the request's capture, or 0.
    """
    from vllm import SamplingParams
    from vllm.exceptions import VLLMClientError
    from vllm.sampling_params import RequestOutputKind

    if decoding.beam_size > 1:
        raise BadInput(
            f"beam_size is {decoding.beam_size}, and vLLM's engine follows one hypothesis of each request; "
            "set it to 1, or open the model on pytorch or gguf"
        )
    max_tokens = token_limit(decoding, row)
    try:
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=min(decoding.min_new_tokens, max_tokens),
            stop_token_ids=list(decoding.stop_ids),
            ignore_eos=True,  # the model's own ends are in stop_token_ids above
            temperature=decoding.temperature,
            top_k=decoding.top_k,
            top_p=known_top_p(decoding.top_p),
            repetition_penalty=decoding.repetition_penalty,
            seed=decoding.seed + row if decoding.samples else None,
            logprobs=decoding.alternatives or None,  # from the logits before all of the above
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args={EXTRA_ARGUMENT: capture} if capture else None,
        )
    except (ValueError, VLLMClientError) as error:
        raise BadInput(f"vLLM does not take the options: {message_of(error, None)}") from error


def likeliest_of(step: Mapping[int, Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (ids int64 [k], log-probabilities float64 [k]) of the likeliest tokens of a step, for a `Watch`.

    Args:
        step: vLLM's log-probabilities by token: of the likeliest tokens and of the chosen token.
        count: the number of tokens that were asked for.
    """
    likeliest = sorted(step.items(), key=lambda each: (-each[1].logprob, each[0]))[:count]
    return (
        np.array([number for number, _ in likeliest], dtype=np.int64),
        np.array([each.logprob for _, each in likeliest], dtype=np.float64),
    )
