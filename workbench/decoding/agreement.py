"""Agreement of two models, or of two runtimes of one model, on the next token, from their likeliest tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.session.values import Alternative


@dataclass(frozen=True)
class Agreement:
    """The overlap of two lists of likeliest tokens."""

    same: bool  # whether the likeliest token is the same
    shared: int  # number of tokens in both lists
    of: int  # number of tokens in the shorter list
    difference: float  # largest difference between the probabilities of a shared token, 0 to 1


def agreement(first: Sequence[Alternative], second: Sequence[Alternative]) -> Agreement:
    """Returns the agreement of two lists, each with the likeliest token first. Raises `ValueError` if one is empty.

    Tokens are equal if their ids are, or, if a server reports no ids, if their texts are.
    """
    if not first or not second:
        raise ValueError("a list of likeliest tokens is empty")
    have_ids = all(each.id >= 0 for each in (*first, *second))
    first_probabilities, second_probabilities = (
        {each.id if have_ids else each.text: math.exp(each.logprob) for each in side} for side in (first, second)
    )
    shared = first_probabilities.keys() & second_probabilities.keys()
    return Agreement(
        same=next(iter(first_probabilities)) == next(iter(second_probabilities)),
        shared=len(shared),
        of=min(len(first_probabilities), len(second_probabilities)),
        difference=max(
            (abs(first_probabilities[token] - second_probabilities[token]) for token in shared), default=1.0
        ),
    )
