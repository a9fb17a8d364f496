"""How far two models, or two runtimes of one, agree on the next token: their likeliest tokens side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.session.values import Alternative


@dataclass(frozen=True)
class Agreement:
    """What two lists of likeliest tokens have in common."""

    same: bool  # the likeliest token
    shared: int  # tokens that are in both lists
    of: int  # tokens in the shorter list
    difference: float  # largest difference of the probabilities of a shared token, 0 to 1


def agreement(one: Sequence[Alternative], other: Sequence[Alternative]) -> Agreement:
    """How far two lists agree, likeliest token first. Raises `ValueError` where one is empty.

    Tokens are the same where their ids are, or their texts where a server does not tell ids.
    """
    if not one or not other:
        raise ValueError("a list of likeliest tokens is empty")
    known = all(each.id >= 0 for each in (*one, *other))
    ours, theirs = ({each.id if known else each.text: math.exp(each.logprob) for each in side} for side in (one, other))
    shared = ours.keys() & theirs.keys()
    return Agreement(
        same=next(iter(ours)) == next(iter(theirs)),
        shared=len(shared),
        of=min(len(ours), len(theirs)),
        difference=max((abs(ours[token] - theirs[token]) for token in shared), default=1.0),
    )
