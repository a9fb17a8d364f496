"""Compares two sides' log-probabilities of the tokens that they wrote, step by step.

The comparison covers the steps up to and including the first token that differs; after it, the texts differ. Each step
holds the likeliest tokens with their ids, and these are aligned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from workbench.compare.tokens.discrete import as_tokens
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace

STAGE, IDS = "tokens.logprobs", "tokens.alternatives"


@dataclass(frozen=True)
class LogprobMeasures:
    """The differences between two sides' log-probabilities, in nats."""

    worst: float  # the largest root mean square of a step; infinite if a token is possible on one side only
    worst_step: int  # -1 if no step was compared
    mean: float  # mean of all absolute differences
    steps: int  # number of compared steps
    tokens: int  # compared tokens: reported by both sides, or by one and bounded by the other's least likely
    # Of parallel streams; see `workbench.compare.tokens.choices`.
    worst_stream: int | None = None
    first_step: int | None = None  # the first step beyond the limit
    first_stream: int | None = None


@dataclass(frozen=True)
class ReportedTokens:
    """The likeliest tokens of each step that a trace reports."""

    ids: np.ndarray  # int64 [steps, k]
    logprobs: np.ndarray  # float64 [steps, k]


def reported_tokens(trace: Trace) -> ReportedTokens | None:
    """Returns the likeliest tokens of each step; None if a trace lacks them or their ids.

    Log-probabilities of the written tokens alone, one for each, need no ids. Raises `BadInput` if ids and
    log-probabilities do not fit together.
    """
    if STAGE not in trace:
        return None
    logprobs = trace[STAGE]
    if IDS in trace:
        ids = trace[IDS]
    elif "tokens" in trace and logprobs.ndim in (1, 2) and logprobs.size == trace["tokens"].size:
        ids, logprobs = as_tokens("tokens", trace["tokens"])[:, None], logprobs.reshape(-1, 1)
    else:
        return None
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or logprobs.shape != ids.shape or logprobs.dtype.kind != "f":
        raise BadInput(
            f"{IDS} holds {ids.dtype} of shape {ids.shape} and {STAGE} {logprobs.dtype} of shape {logprobs.shape}; "
            "expected whole numbers and floating point of one shape (tokens, alternatives)"
        )
    return ReportedTokens(ids.astype(np.int64), logprobs.astype(np.float64))


def measure_logprobs(reference: Trace, candidate: Trace) -> LogprobMeasures:
    """Returns the measures of two traces that both report log-probabilities."""
    reference_tokens, candidate_tokens = reported_tokens(reference), reported_tokens(candidate)
    assert reference_tokens is not None and candidate_tokens is not None
    steps = min(
        len(reference_tokens.ids),
        len(candidate_tokens.ids),
        _same_context(reference, candidate, reference_tokens, candidate_tokens),
    )
    worst, worst_step, total, tokens = 0.0, -1, 0.0, 0
    for step in range(steps):
        step_differences = differences(
            *(
                dict(zip(side.ids[step].tolist(), side.logprobs[step].tolist()))
                for side in (reference_tokens, candidate_tokens)
            )
        )
        rms = root_mean_square(step_differences)
        if worst_step < 0 or rms > worst:
            worst, worst_step = rms, step
        total += sum(step_differences)
        tokens += len(step_differences)
    return LogprobMeasures(worst, worst_step, total / max(tokens, 1), steps, tokens)


def _same_context(
    reference: Trace, candidate: Trace, reference_tokens: ReportedTokens, candidate_tokens: ReportedTokens
) -> int:
    """Returns how many steps follow the same tokens: one more than the number of equal tokens."""
    token_rows = [
        as_tokens("tokens", trace["tokens"]) if "tokens" in trace else side.ids[:, 0]
        for trace, side in ((reference, reference_tokens), (candidate, candidate_tokens))
    ]
    common = min(map(len, token_rows))
    differing = np.flatnonzero(token_rows[0][:common] != token_rows[1][:common])
    return int(differing[0]) + 1 if len(differing) else max(map(len, token_rows))


def root_mean_square(values: list[float]) -> float:
    """Returns the root mean square of some values; 0 of none."""
    return math.sqrt(sum(each * each for each in values) / max(len(values), 1))


def differences(reference: dict[int, float], candidate: dict[int, float]) -> list[float]:
    """Returns the absolute differences of a step's tokens.

    If a side does not report a token, its least likely reported token is an upper bound. The difference is then how far
    this bound lies below the other side's value.
    """
    result = [_absolute_difference(reference[token], candidate[token]) for token in reference.keys() & candidate.keys()]
    for side, other_side in ((reference, candidate), (candidate, reference)):
        bound = min(other_side.values(), default=-math.inf)
        result += [
            _absolute_difference(value, bound)
            for token, value in side.items()
            if token not in other_side and value > bound
        ]
    return result


def _absolute_difference(first: float, second: float) -> float:
    if first == second:  # also for impossible tokens, which are both -inf
        return 0.0
    difference = abs(first - second)
    return math.inf if math.isnan(difference) else difference
