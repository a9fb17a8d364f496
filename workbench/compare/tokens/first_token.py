"""The first token on which two traces differ, and the choice that decided it."""

from __future__ import annotations

import numpy as np

from workbench.compare.comparison import FirstToken
from workbench.compare.presets import Tolerances
from workbench.compare.stage import StageComparison
from workbench.compare.tokens.answers import FirstId
from workbench.compare.tokens.discrete import as_tokens
from workbench.compare.tokens.logits import Choice, choice_among, choice_at, deciding_row, spread_of
from workbench.compare.tokens.logprobs import ReportedTokens, reported_tokens
from workbench.trace.cuts import cuts_of
from workbench.trace.trace import Trace


def first_token(
    reference: Trace,
    candidate: Trace,
    results: list[StageComparison],
    tolerances: Tolerances,
    difference: FirstId | None = None,
) -> FirstToken | None:
    """Returns the first token that differs; None if none does.

    Args:
        results: the compared stages.
        difference: where answers with parallel streams differ first.
    """
    differing = next((each for each in results if each.stage == "tokens" and each.differs), None)
    if differing is None or differing.sequence is None or differing.sequence.first_difference is None:
        return None
    position = differing.sequence.first_difference
    tokens = tuple(as_tokens("tokens", trace["tokens"]) for trace in (reference, candidate))
    ids = [int(each[position]) if position < len(each) else None for each in tokens]
    choice = None
    if difference is not None:  # a later difference follows from the first one
        choice = difference.choice if (difference.position, difference.stream) == (position, 0) else None
        return FirstToken(position, ids[0], ids[1], choice, difference.near_tie)
    if "logits" not in cuts_of(candidate) and any(each.stage == "logits" and each.numbers for each in results):
        logits = reference["logits"], candidate["logits"]
        row = deciding_row(*logits, (tokens[0], tokens[1]), position, _prompt_positions(reference))
        choice = None if row is None else choice_at(*logits, row)
    step_logits = f"steps.{position}.logits"
    if choice is None and None not in ids and any(each.stage == step_logits and each.numbers for each in results):
        choice = choice_at(reference[step_logits], candidate[step_logits], 0)
    if choice is None and ids[0] is not None and ids[1] is not None:
        choice = _reported_choice(reference, candidate, position, (ids[0], ids[1]))
    return FirstToken(
        position, ids[0], ids[1], choice, choice is not None and choice.is_near_tie(near_tie_noise(tolerances))
    )


def near_tie_noise(tolerances: Tolerances) -> float:
    """Returns the relative error that explains a near tie.

    Under the preset `exact` a near tie is still no clear choice, so at least float32's limit applies.
    """
    return max(tolerances.preset.limits.relative_l2, 1e-4)


def _reported_choice(reference: Trace, candidate: Trace, position: int, ids: tuple[int, int]) -> Choice | None:
    """Returns the choice at a place from the likeliest tokens that both traces report there; None if one reports none.

    These do not state the deviation of the logits. It is taken from the last row of logits in a trace, or, without
    logits, from the reported log-probabilities.
    """
    reference_tokens, candidate_tokens = (_step(reported_tokens(trace), position) for trace in (reference, candidate))
    if reference_tokens is None or candidate_tokens is None:
        return None
    rows = (trace["logits"][-1] for trace in (reference, candidate) if "logits" in trace and len(trace["logits"]))
    return choice_among(reference_tokens, candidate_tokens, ids, spread_of(next(rows, reference_tokens[1])))


def _step(tokens: ReportedTokens | None, position: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns (ids, log-probabilities) of the likeliest tokens at a place; None if the trace does not hold them."""
    return None if tokens is None or position >= len(tokens.ids) else (tokens.ids[position], tokens.logprobs[position])


def _prompt_positions(trace: Trace) -> int | None:
    """Returns the number of positions of a language model's prompt; None for other models or if it is unknown."""
    if "llm.embeddings" in trace:
        return len(trace["llm.embeddings"])
    if "prompt.tokens" not in trace or (trace["prompt.tokens"] < 0).any():  # a placeholder for speech of unknown length
        return None
    return int(np.size(trace["prompt.tokens"]))
