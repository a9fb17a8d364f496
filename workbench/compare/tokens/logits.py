"""Differences between two sets of logits as predictions: divergence, agreement of the best tokens, margin of a
choice.

Rows are positions or frames, columns the vocabulary. Softmax is computed in float64, a few rows at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from workbench.compare.guesses.guess import remainder_clause

TOP = 5  # number of best candidates that are compared as a set
_BLOCK_VALUES = 1 << 20
_UNITY = 0.01  # tolerance for the sum of probabilities in float16
_MUCH_NEARER = 0.1  # share of the difference, and of the logits, that may remain if a constant explains it


@dataclass(frozen=True)
class LogitMeasures:
    """The measures of two sets of logits of one shape, row by row."""

    kl_mean: float  # Kullback-Leibler divergence of the candidate from the reference, nats; infinite where not finite
    kl_max: float
    kl_worst_row: int  # -1 without rows
    top1_agreement: float  # share of rows with the same best candidate
    flips: int  # rows with different best candidates
    top_overlap: float  # mean share of the reference's `top` best that are also among the candidate's
    top: int
    rows: int


@dataclass(frozen=True)
class Choice:
    """A row in which the two sides prefer different tokens, and by how much.

    A margin is the logit of the side's own favourite minus that of the other side's; `spread` is the root mean square
    of the reference's logits in that row around their mean. If only a side's likeliest tokens are known and the other's
    favourite is not among them, the margin is a lower bound: the difference to the last of them.
    """

    row: int | None  # row of the logits; None if only the likeliest tokens are known
    reference_token: int
    candidate_token: int
    reference_margin: float
    candidate_margin: float
    spread: float
    reference_at_least: bool = False
    candidate_at_least: bool = False

    def is_near_tie(self, relative_l2: float) -> bool:
        """Returns whether errors of that relative size explain the choice; False if a margin is only a lower bound.

        The difference of two logits with independent errors of `relative_l2 * spread` has sqrt(2) times their
        deviation. The limit is four deviations, because the row is the least certain of many.
        """
        noise = 4 * math.sqrt(2) * relative_l2 * self.spread
        is_measured = not (self.reference_at_least or self.candidate_at_least)
        return is_measured and max(self.reference_margin, self.candidate_margin) <= noise


def measure_logits(reference: np.ndarray, candidate: np.ndarray) -> LogitMeasures:
    """Returns the measures of logits [rows, vocabulary], both of one shape."""
    rows, vocabulary = reference.shape
    top = min(TOP, vocabulary)
    if not rows or not vocabulary:
        return LogitMeasures(0.0, 0.0, -1, 1.0, 0, 1.0, top, rows)
    divergence, agrees, overlap = np.empty(rows), np.empty(rows, bool), np.empty(rows)
    height = max(1, _BLOCK_VALUES // vocabulary)
    for start in range(0, rows, height):
        block = slice(start, start + height)
        r, c = reference[block].astype(np.float64), candidate[block].astype(np.float64)
        divergence[block] = _divergence(r, c)
        agrees[block] = r.argmax(axis=1) == c.argmax(axis=1)
        top_ids = [np.argpartition(side, vocabulary - top, axis=1)[:, vocabulary - top :] for side in (r, c)]
        overlap[block] = (top_ids[0][:, :, None] == top_ids[1][:, None, :]).any(axis=2).mean(axis=1)
    worst = int(divergence.argmax())
    return LogitMeasures(
        kl_mean=float(divergence.mean()),
        kl_max=float(divergence[worst]),
        kl_worst_row=worst,
        top1_agreement=float(agrees.mean()),
        flips=int(rows - agrees.sum()),
        top_overlap=float(overlap.mean()),
        top=top,
        rows=rows,
    )


def _divergence(r: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Returns sum p (log p - log q) of each row, at least 0.

    It is infinite where q is zero and p is not, or where a row has no softmax and differs between the sides.
    """
    with np.errstate(all="ignore"):
        log_p, log_q = (side - side.max(axis=1, keepdims=True) for side in (r, c))
        log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
        log_q -= np.log(np.exp(log_q).sum(axis=1, keepdims=True))
        p = np.exp(log_p)
        terms = np.where(p > 0, p * (log_p - log_q), np.where(np.isnan(p), np.nan, 0.0))
        sums = terms.sum(axis=1)
    for row in np.flatnonzero(np.isnan(sums)):
        sums[row] = 0.0 if np.array_equal(r[row], c[row], equal_nan=True) else np.inf
    return np.maximum(sums, 0.0)


def explain_logits(reference: np.ndarray, candidate: np.ndarray) -> str | None:
    """Returns what the candidate holds instead of logits [rows, vocabulary], if it is recognised; tests only the first
    rows.
    """
    row_count = max(1, _BLOCK_VALUES // max(reference.shape[1], 1))
    r, c = reference[:row_count].astype(np.float64), candidate[:row_count].astype(np.float64)
    if not r.size or not (np.isfinite(r).all() and np.isfinite(c).all()):
        return None
    if c.min() >= 0 and np.allclose(c.sum(axis=1), 1, atol=_UNITY) and not np.allclose(r.sum(axis=1), 1, atol=_UNITY):
        return "each row is nonnegative and has the sum 1, like probabilities: a softmax was taken"
    difference = float(np.linalg.norm(c - r))
    r, c = (side - side.mean(axis=1, keepdims=True) for side in (r, c))
    remainder, size = float(np.linalg.norm(c - r)), float(np.linalg.norm(r))
    if size and remainder <= _MUCH_NEARER * min(difference, size):
        return (
            f"each row is the reference's plus a constant, as after log-softmax; {remainder_clause(remainder / size)}"
        )
    return None


def choice_at(reference: np.ndarray, candidate: np.ndarray, row: int) -> Choice | None:
    """Returns the choice in a row of logits [rows, vocabulary]; None if both sides prefer the same token, or if a row
    has no order.
    """
    r, c = reference[row].astype(np.float64), candidate[row].astype(np.float64)
    reference_token, candidate_token = int(r.argmax()), int(c.argmax())  # the NaN, in a row with one
    if reference_token == candidate_token or not np.isfinite([r[reference_token], c[candidate_token]]).all():
        return None
    return Choice(
        row=row,
        reference_token=reference_token,
        candidate_token=candidate_token,
        reference_margin=float(r[reference_token] - r[candidate_token]),
        candidate_margin=float(c[candidate_token] - c[reference_token]),
        spread=spread_of(r),
    )


def spread_of(row: np.ndarray) -> float:
    """Returns the standard deviation of a row of logits [vocabulary], without values that are not finite."""
    finite = row[np.isfinite(row)].astype(np.float64)
    return float(finite.std()) if len(finite) else 0.0


def choice_among(
    reference: tuple[np.ndarray, np.ndarray],
    candidate: tuple[np.ndarray, np.ndarray],
    tokens: tuple[int, int],
    spread: float,
) -> Choice | None:
    """Returns the choice of different tokens after the same ones, from the likeliest tokens of both sides.

    Log-probabilities of one side differ as its logits do.

    Args:
        reference: ids [k] and log-probabilities [k], likeliest first.
        tokens: the token that each side chose.
        spread: of the logits.

    Returns None if a side's own choice is not among its likeliest.
    """
    reference_margin, candidate_margin = _margin(*reference, *tokens), _margin(*candidate, *tokens[::-1])
    if reference_margin is None or candidate_margin is None:
        return None
    return Choice(
        None, *tokens, reference_margin[0], candidate_margin[0], spread, reference_margin[1], candidate_margin[1]
    )


def _margin(ids: np.ndarray, logprobs: np.ndarray, own_token: int, other_token: int) -> tuple[float, bool] | None:
    """Returns by how much a side prefers its own token, and whether that is only a lower bound."""
    known_logprobs = {number: value for number, value in zip(ids.tolist(), logprobs.tolist()) if math.isfinite(value)}
    if own_token not in known_logprobs:
        return None
    return known_logprobs[own_token] - known_logprobs.get(
        other_token, min(known_logprobs.values())
    ), other_token not in known_logprobs


def deciding_row(
    reference: np.ndarray,
    candidate: np.ndarray,
    tokens: tuple[np.ndarray, np.ndarray],
    index: int,
    prompt: int | None = None,
) -> int | None:
    """Returns the row of the logits that decided the token at `index`, where two sequences first differ.

    Args:
        reference: logits [rows, vocabulary]; those of the candidate have the same shape.
        tokens: the tokens of both.
        prompt: the number of positions in the prompt of a language model, if there is one.

    Three layouts are known: one row for each token; the positions of a prompt (its last row decides the first token),
    possibly followed by those of the later tokens; frames of a CTC model, which give the tokens after repeats are
    merged and blanks dropped. Returns None for another layout or a missing row.
    """
    rows = len(reference)
    if rows == prompt:
        return rows - 1 if index == 0 else None
    if rows in (len(tokens[0]), len(tokens[1])):
        return index if index < rows else None
    paths = reference.argmax(axis=1), candidate.argmax(axis=1)
    for blank in (0, reference.shape[1] - 1):
        starts = [_token_starts(path, blank) for path in paths]
        if all(np.array_equal(path[start], sequence) for path, start, sequence in zip(paths, starts, tokens)):
            return _deciding_frame(paths, starts, index)
    return prompt - 1 + index if prompt and prompt - 1 + index < rows else None


def _deciding_frame(paths: tuple[np.ndarray, np.ndarray], starts: list[np.ndarray], index: int) -> int | None:
    """Returns the last frame with different favourites, up to where either side's token of that place begins."""
    first = min(int(start[index]) if index < len(start) else len(paths[0]) - 1 for start in starts)
    differing = np.flatnonzero(paths[0][: first + 1] != paths[1][: first + 1])
    return int(differing[-1]) if len(differing) else None


def _token_starts(best: np.ndarray, blank: int) -> np.ndarray:
    """Returns the frames at which the tokens of a CTC path begin."""
    changed = np.ones(len(best), bool)
    changed[1:] = best[1:] != best[:-1]
    return np.flatnonzero(changed & (best != blank))
