"""The first token on which two traces differ, and the choice that decided it."""

from __future__ import annotations

import numpy as np

from workbench.compare.answers import FirstId
from workbench.compare.comparison import FirstToken
from workbench.compare.discrete import as_tokens
from workbench.compare.logits import Choice, choice_among, choice_at, deciding_row, spread_of
from workbench.compare.logprobs import ReportedTokens, reported_tokens
from workbench.compare.presets import Tolerances
from workbench.compare.stage import StageComparison
from workbench.trace.cuts import cuts_of
from workbench.trace.trace import Trace


def first_token(
    reference: Trace,
    candidate: Trace,
    found: list[StageComparison],
    tolerances: Tolerances,
    part: FirstId | None = None,
) -> FirstToken | None:
    """Returns the first token that differs; None if none does.

    Args:
        found: the compared stages.
        part: where answers with parallel streams differ first.
    """
    differing = next((each for each in found if each.stage == "tokens" and each.differs), None)
    if differing is None or differing.sequence is None or differing.sequence.first_difference is None:
        return None
    place = differing.sequence.first_difference
    tokens = tuple(as_tokens("tokens", trace["tokens"]) for trace in (reference, candidate))
    ids = [int(each[place]) if place < len(each) else None for each in tokens]
    choice = None
    if part is not None:  # a later difference follows from the first one
        choice = part.choice if (part.position, part.stream) == (place, 0) else None
        return FirstToken(place, ids[0], ids[1], choice, part.near_tie)
    if "logits" not in cuts_of(candidate) and any(each.stage == "logits" and each.numbers for each in found):
        logits = reference["logits"], candidate["logits"]
        row = deciding_row(*logits, (tokens[0], tokens[1]), place, _prompt_positions(reference))
        choice = None if row is None else choice_at(*logits, row)
    stepped = f"steps.{place}.logits"
    if choice is None and None not in ids and any(each.stage == stepped and each.numbers for each in found):
        choice = choice_at(reference[stepped], candidate[stepped], 0)
    if choice is None and ids[0] is not None and ids[1] is not None:
        choice = _reported_choice(reference, candidate, place, (ids[0], ids[1]))
    return FirstToken(
        place, ids[0], ids[1], choice, choice is not None and choice.is_near_tie(near_tie_noise(tolerances))
    )


def near_tie_noise(tolerances: Tolerances) -> float:
    """Returns the relative error that explains a near tie.

    Under the preset `exact` a near tie is still no clear choice, so at least float32's limit applies.
    """
    return max(tolerances.preset.limits.relative_l2, 1e-4)


def _reported_choice(reference: Trace, candidate: Trace, place: int, ids: tuple[int, int]) -> Choice | None:
    """Returns the choice at a place from the likeliest tokens that both traces report there; None if one reports none.

    These do not state the deviation of the logits. It is taken from the last row of logits in a trace, or, without
    logits, from the reported log-probabilities.
    """
    reference_tokens, candidate_tokens = (_step(reported_tokens(trace), place) for trace in (reference, candidate))
    if reference_tokens is None or candidate_tokens is None:
        return None
    rows = (trace["logits"][-1] for trace in (reference, candidate) if "logits" in trace and len(trace["logits"]))
    return choice_among(reference_tokens, candidate_tokens, ids, spread_of(next(rows, reference_tokens[1])))


def _step(found: ReportedTokens | None, place: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns (ids, log-probabilities) of the likeliest tokens at a place; None if the trace does not hold them."""
    return None if found is None or place >= len(found.ids) else (found.ids[place], found.logprobs[place])


def _prompt_positions(trace: Trace) -> int | None:
    """Returns the number of positions of a language model's prompt; None for other models or if it is unknown."""
    if "llm.embeddings" in trace:
        return len(trace["llm.embeddings"])
    if "prompt.tokens" not in trace or (trace["prompt.tokens"] < 0).any():  # a placeholder for speech of unknown length
        return None
    return int(np.size(trace["prompt.tokens"]))
