"""The weight of each frame in each token, as CIF divides it, and as ports divide it wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from workbench.compare.guesses.guess import relative_l2

_SHARES = {"part": "its part of the weight", "whole": "its whole weight", "none": "no weight"}
_THRESHOLDS = tuple(round(0.01 * each, 2) for each in (*range(30, 50, 5), *range(50, 150), *range(150, 205, 5)))
_SAME = 1e-4  # a threshold that is nearer to 1 counts as 1
_FIRST = 8  # tokens on which a way is tried
_CLOSE = 1e-3  # relative L2 up to which the first tokens are close
_ROUNDINGS = 4  # times the allowed error: they are close up to that, too


@dataclass(frozen=True)
class Division:
    """A way of dividing the weights of frames between tokens."""

    own: str = "part"  # what a frame that completes a token adds to it: "part", "whole" or "none"
    following: str = "part"  # what it adds to the next token
    rest: str = "kept"  # the rest of its weight: "kept" in the sum, "carried" to the next frame, or "dropped"
    threshold: float = 1.0  # the sum of weights at which a token is complete
    unit: float = 1.0  # what is then taken from the sum


RIGHT = Division()


class Shares(NamedTuple):
    """The weights that frames have in tokens.

    A frame has one weight. It has two if it completes a token and begins the next one.
    """

    weights: np.ndarray
    frames: np.ndarray  # the frame of each
    ends: list[int]  # the end of each token in these

    def tokens(self, frames: np.ndarray, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Returns tokens [rows, D] of frames [T, D]; a token behind the last one is zeros."""
        found = np.zeros((len(rows), frames.shape[1]))
        for place, row in enumerate(rows):
            if row < len(self.ends):
                span = slice(self.ends[row - 1] if row else 0, self.ends[row])
                found[place] = self.weights[span] @ frames[self.frames[span]]
        return found


def shares_of(weights: np.ndarray, count: int) -> Shares | None:
    """Returns the weights of frames in so many tokens; None if the weights complete fewer."""
    shares, complete = _divided(weights, count, RIGHT)
    return shares if complete == count else None


def other_shares(
    weights: np.ndarray, frames: np.ndarray, tokens: np.ndarray, allowed: float
) -> Iterator[tuple[str, Shares]]:
    """Yields wrong ways of dividing weights [T] of frames [T, D]: a sentence, and the shares.

    Args:
        tokens: those of the candidate [N, D]; a way has to give the first of them.
        allowed: relative L2 that counts as rounding.
    """
    close = max(_CLOSE, _ROUNDINGS * allowed)
    for words, divided_weights, division in _ways(weights, frames, tokens, close):
        first = min(len(tokens), _FIRST)
        shares, complete = _divided(divided_weights, first, division)
        rows = range(min(first, complete))
        if len(rows) and relative_l2(shares.tokens(frames, rows), tokens[: len(rows)]) <= close:
            yield from _complete_or_not(words, divided_weights, len(tokens), division)


def _ways(
    weights: np.ndarray, frames: np.ndarray, tokens: np.ndarray, close: float
) -> Iterator[tuple[str, np.ndarray, Division]]:
    """Yields a sentence, the weights and the division for each way."""
    for words, division in _divisions():
        yield words, weights, division
    for is_scaled in (False, True):
        fitted = _fitted_threshold(weights, frames, tokens[0], is_scaled, close)
        # A threshold is a short number; the fitted one is less exact.
        for threshold in dict.fromkeys((round(fitted, 2), round(fitted, 4), fitted) if fitted else ()):
            words = f"a token is complete at each {threshold:.5g} of the sum of weights, where the reference's is at 1"
            divisor = threshold if is_scaled else 1.0
            words += f", and its weights are divided by {threshold:.5g}" * is_scaled
            yield words, weights / divisor, Division(threshold=threshold / divisor, unit=threshold / divisor)
    above = 0.0
    for threshold in _THRESHOLDS:
        if threshold <= above:
            continue  # gives the same tokens as the one before
        below, above = _range(weights, len(tokens), threshold)
        if not below < 1 <= above:
            words = (
                f"a token is complete where the sum of weights reaches a threshold between {below:.4g} and "
                f"{above:.4g}, where the reference's is 1, and 1 is then taken from the sum"
            )
            yield words, weights, Division(threshold=threshold)


def _divisions() -> Iterator[tuple[str, Division]]:
    for own, following in product(_SHARES, _SHARES):
        if (own, following) != ("part", "part"):
            words = f"a frame that completes a token adds {_SHARES[own]} to it and {_SHARES[following]} to the next"
            yield words, Division(own, following)
    dropped = "the sum of weights begins at 0 after each token, without the rest of the last weight"
    yield dropped, Division(following="none", rest="dropped")
    carried = "the rest of a weight that completes a token is given to the next frame"
    yield carried, Division(following="none", rest="carried")


def _complete_or_not(words: str, weights: np.ndarray, count: int, division: Division) -> Iterator[tuple[str, Shares]]:
    """Yields the shares of tokens; if fewer are complete, those with the rest in one more, or with zeros."""
    shares, complete = _divided(weights, count, division)
    if complete == count:
        yield words, shares
    elif complete:
        clause = f"only {complete} of {count} tokens are complete"
        yield f"{words}; {clause}, and zeros follow", shares._replace(ends=shares.ends[:complete])
        yield f"{words}; {clause}, and the next has the weights that remain", shares


def _divided(weights: np.ndarray, count: int, division: Division) -> tuple[Shares, int]:
    """Returns the shares of at most `count` tokens, and how many are complete; the one after these has what remains."""
    shares, places, ends = list[float](), list[int](), list[int]()
    total = carried = 0.0
    for frame, each in enumerate(weights.tolist()):
        weight, carried = each + carried, 0.0
        places.append(frame)
        if total + weight < division.threshold:
            total += weight
            shares.append(weight)
            continue
        rest = total + weight - division.unit
        shares.append({"part": weight - rest, "whole": weight, "none": 0.0}[division.own])
        ends.append(len(shares))
        if len(ends) == count:
            break
        places.append(frame)
        shares.append({"part": rest, "whole": weight, "none": 0.0}[division.following])
        total = rest if division.rest == "kept" else 0.0
        carried = rest if division.rest == "carried" else 0.0
    complete = len(ends)
    if complete < count:
        ends.append(len(shares))
    return Shares(np.array(shares), np.array(places, int), ends), complete


def _fitted_threshold(
    weights: np.ndarray, frames: np.ndarray, first: np.ndarray, is_scaled: bool, close: float
) -> float | None:
    """Returns the sum of weights at which the first token is complete; None if none explains it.

    With P and S the sums of w x and of w before the frame x that completes the token, the token is P + (t - S) x, and
    that by t if the weights are scaled.
    """
    before = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
    last = int(np.searchsorted(before, 2 * max(_THRESHOLDS)))
    w, before, x = weights[:last], before[:last, None], frames[:last]
    sums = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(w[:, None] * x, axis=0)[:-1]])
    y, z = (sums - before * x, first - x) if is_scaled else (first - sums + before * x, x)
    squares = np.square(z).sum(axis=1)
    thresholds = np.divide((y * z).sum(axis=1), squares, out=np.zeros(len(x)), where=squares > 0)
    errors = np.linalg.norm(y - thresholds[:, None] * z, axis=1)
    is_within = (thresholds >= before[:, 0]) & (thresholds <= before[:, 0] + w) & (thresholds > 0)
    if not is_within.any():
        return None
    place = int(np.where(is_within, errors, np.inf).argmin())
    threshold = float(thresholds[place])
    is_fitted = relative_l2(y[place], thresholds[place] * z[place]) <= close
    return threshold if is_fitted and abs(threshold - 1) > _SAME else None


def _range(weights: np.ndarray, count: int, threshold: float) -> tuple[float, float]:
    """Returns between which thresholds `count` tokens, with 1 taken from the sum, are the same as at this one."""
    below, above, total, token = 0.0, np.inf, 0.0, 0
    for weight in weights.tolist():
        total += weight
        if total >= threshold:
            above = min(above, total)
            total -= 1
            token += 1
            if token == count:
                break
        else:
            below = max(below, total)
    return below, above
