"""Picks next tokens from logits by the options, with numpy, for runtimes whose logits come as arrays.

The options mean the same as in transformers and apply in this order: penalty, minimum length, temperature, `top_k`,
`top_p`.
"""

from __future__ import annotations

import numpy as np

from workbench.decoding.generation import Decoding


class TokenSampler:
    """Chooses the next token of each row as the options of decoding say; the seed makes draws repeatable."""

    def __init__(self, decoding: Decoding):
        self.decoding = decoding
        self._draw = np.random.default_rng(decoding.seed) if decoding.samples else None

    def __call__(self, generated: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Returns tokens int64 [batch] for generated tokens [batch, n] and float32 logits [batch, vocabulary]."""
        scores = self.scores(generated, logits)
        if self._draw is None:
            return scores.argmax(axis=1)
        return np.array([_token_at(row, number) for row, number in zip(scores, self._draw.random(len(scores)))])

    def scores(self, generated: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Returns logits [batch, vocabulary] after all options except the draw: impossible tokens get minus infinity.

        It does not change its arguments. Without options, it returns the same array.
        """
        chosen = self.decoding
        waits = bool(chosen.stop_ids) and generated.shape[1] < chosen.min_new_tokens
        if chosen.repetition_penalty == 1.0 and not waits and not chosen.samples:
            return logits
        scores = np.array(logits, dtype=np.float32)
        if chosen.repetition_penalty != 1.0:
            penalise(scores, generated, chosen.repetition_penalty)
        if waits:
            forbid(scores, chosen.stop_ids)
        if chosen.samples:
            scores /= np.float32(chosen.temperature)
            for row in scores:
                _keep_likeliest(row, chosen.top_k, chosen.top_p)
        return scores


def penalise(scores: np.ndarray, generated: np.ndarray, penalty: float) -> None:
    """Divides the positive scores [batch, vocabulary] of generated tokens [batch, n] by the penalty, in place.

    Multiplies the negative scores by it.
    """
    if not generated.size:
        return
    chosen_scores = np.take_along_axis(scores, generated, axis=1)
    factor = np.float32(penalty)
    np.put_along_axis(
        scores, generated, np.where(chosen_scores < 0, chosen_scores * factor, chosen_scores / factor), axis=1
    )


def forbid(scores: np.ndarray, ids: tuple[int, ...]) -> None:
    """Sets the scores [batch, vocabulary] of the ids to minus infinity, in place; other ids are ignored."""
    scores[:, [number for number in ids if 0 <= number < scores.shape[1]]] = -np.inf


def _keep_likeliest(row: np.ndarray, top_k: int, top_p: float) -> None:
    """Makes all other tokens impossible, in place; all tokens with the lowest score inside `top_k` stay."""
    if 0 < top_k < len(row):
        row[row < np.partition(row, -top_k)[-top_k]] = -np.inf
    if top_p < 1.0:
        possible = np.flatnonzero(row > -np.inf)
        order = possible[np.argsort(row[possible], kind="stable")]  # from the least likely
        reached = np.cumsum(_probabilities(row[order]))
        reached[-1] = np.inf  # the likeliest token always stays
        row[order[reached <= 1 - top_p]] = -np.inf


def _probabilities(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(), dtype=np.float64)
    probabilities: np.ndarray = weights / weights.sum()
    return probabilities


def _token_at(scores: np.ndarray, number: float) -> int:
    """Returns the token at which the cumulative probability passes a number between 0 and 1."""
    possible = np.flatnonzero(scores > -np.inf)
    reached = np.cumsum(_probabilities(scores[possible]))
    return int(possible[min(int(np.searchsorted(reached, number, side="right")), len(possible) - 1)])
