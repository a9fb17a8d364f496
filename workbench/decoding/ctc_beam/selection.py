"""The choice of the hypotheses that live on after a frame.

Ties go to the earlier one in a fixed order, so the choice for an utterance does not depend on the rest of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MIN_SCORE = float(np.finfo(np.float64).min)  # every possible score is at least this; an impossible one is -inf


@dataclass(frozen=True)
class Selection:
    """Which of the old hypotheses stay, and which of the new ones come.

    Args:
        kept: bool [utterances, rows].
        added: indices of new hypotheses, in their order, int64 [n].
        cut: the lowest score chosen by rank in each utterance, float64 [utterances]; -inf if all fit.
    """

    kept: np.ndarray
    added: np.ndarray
    cut: np.ndarray


def slightly_below(bound: np.ndarray) -> np.ndarray:
    """Returns numbers a little below bounds [...], as bounds and the scores that they limit are rounded differently."""
    return np.maximum(bound - 1e-9 * (1.0 + np.abs(bound)), MIN_SCORE)


def floor_of(scores: np.ndarray, size: int, threshold: float | None) -> np.ndarray:
    """Returns scores that new hypotheses must reach to be chosen, float64 [utterances].

    Args:
        scores: the old hypotheses' scores without a new token, float64 [utterances, rows].
        size: hypotheses that can be chosen.
        threshold: the most by which a chosen one may be worse than the best.
    """
    rows = scores.shape[1]
    if rows < size and threshold is None:
        return np.full(len(scores), MIN_SCORE)
    if rows < size:
        floor = np.full(len(scores), -np.inf)
    elif rows == size:
        floor = scores.min(axis=1)
    else:
        floor = np.partition(scores, rows - size, axis=1)[:, rows - size]
    if threshold is not None:
        floor = np.maximum(floor, scores.max(axis=1) - threshold)
    return slightly_below(floor)


def choose(
    old: np.ndarray,
    new: np.ndarray,
    utterances: np.ndarray,
    size: int,
    threshold: float | None = None,
    complete: np.ndarray | None = None,
    complete_size: int = 0,
) -> Selection:
    """Returns the best `size` hypotheses of each utterance.

    Args:
        old: scores of the old hypotheses, float64 [utterances, rows]; -inf for impossible ones.
        new: scores of the new hypotheses, float64 [n].
        utterances: the utterance of each new one, ascending, int64 [n].
        size: how many to choose.
        threshold: the most by which a chosen one may be worse than the best.
        complete: which old hypotheses have no unfinished word, bool [utterances, rows].
        complete_size: the number of these that stay in any case.
    """
    count, rows = old.shape
    new_counts = np.bincount(utterances, minlength=count)
    width = rows + int(new_counts.max(initial=0))
    first_new = np.arange(count) * width + rows - new_counts.cumsum() + new_counts
    places = np.arange(len(new)) + first_new.take(utterances)
    scores = np.full((count, width), -np.inf)
    scores[:, :rows] = old
    scores.put(places, new)
    is_chosen, cut = _best_within(scores, size, threshold)
    kept = is_chosen[:, :rows]
    if complete is not None:
        kept = kept | _best(np.where(complete, old, -np.inf), complete_size)[0]
    return Selection(kept, is_chosen.take(places).nonzero()[0], cut)


def surviving(
    old: np.ndarray, size: int, threshold: float | None, complete: np.ndarray | None, complete_size: int
) -> np.ndarray:
    """Returns which old hypotheses stay in `choose` without new ones, bool [utterances, rows]."""
    kept = _best_within(old, size, threshold)[0]
    return kept if complete is None else kept | _best(np.where(complete, old, -np.inf), complete_size)[0]


def _best_within(scores: np.ndarray, size: int, threshold: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best `size` entries of each row that are within the threshold, and the score of the last of them."""
    chosen, cut = _best(scores, size)
    if threshold is not None:
        cut = np.maximum(cut, scores.max(axis=1) - threshold)
        chosen &= scores >= cut[:, None]
    return chosen, cut


def _best(scores: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best `size` entries of each row as a mask, and the score of the last of them.

    The score is -inf if no possible entry is left out.
    """
    last = scores.shape[1] - size
    if last <= 0:
        return scores > -np.inf, np.full(len(scores), -np.inf)
    ordered = np.sort(scores, axis=1)  # quicker than to part them, as they are few
    best_omitted, last_score = ordered[:, last - 1], ordered[:, last]
    is_chosen = scores >= np.maximum(last_score, MIN_SCORE)[:, None]
    has_tie = (best_omitted == last_score) & (last_score > -np.inf)
    if has_tie.any():
        is_above = scores > last_score[:, None]
        places_left = size - is_above.sum(axis=1)
        is_tied = is_chosen & ~is_above
        is_chosen = is_above | (is_tied & (is_tied.cumsum(axis=1) <= places_left[:, None]))
    return is_chosen, np.where(best_omitted > -np.inf, last_score, -np.inf)
