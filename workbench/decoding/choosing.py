"""Picks next tokens from logits as the options say, with numpy: for runtimes whose logits come as arrays.

The options mean what they mean in transformers: penalty, shortest length, temperature, the likeliest so many, the
likeliest that reach a probability together, in this order.
"""

from __future__ import annotations

import numpy as np

from workbench.decoding.generation import Decoding


class Chooser:
    """Picks a token for each row; draws are repeatable by the seed."""

    def __init__(self, decoding: Decoding):
        self.decoding = decoding
        self._draw = np.random.default_rng(decoding.seed) if decoding.samples else None

    def __call__(self, generated: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Tokens int64 [batch] after those generated so far [batch, n], from float32 logits [batch, vocabulary]."""
        scores = self.scores(generated, logits)
        if self._draw is None:
            return scores.argmax(axis=1)
        return np.array([_drawn(row, number) for row, number in zip(scores, self._draw.random(len(scores)))])

    def scores(self, generated: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """The logits after all options but the draw: what cannot be drawn is minus infinity. The logits stay as they
        are; without options they are returned themselves."""
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
    """Divides positive scores [batch, vocabulary] of tokens generated before [batch, n], multiplies negative ones."""
    if not generated.size:
        return
    found = np.take_along_axis(scores, generated, axis=1)
    factor = np.float32(penalty)
    np.put_along_axis(scores, generated, np.where(found < 0, found * factor, found / factor), axis=1)


def forbid(scores: np.ndarray, ids: tuple[int, ...]) -> None:
    """Makes the ids impossible in scores [batch, vocabulary]; ids outside the vocabulary are none of its tokens."""
    scores[:, [number for number in ids if 0 <= number < scores.shape[1]]] = -np.inf


def _keep_likeliest(row: np.ndarray, top_k: int, top_p: float) -> None:
    """Makes all others impossible, in place; of tokens that score alike at the edge of `top_k`, all are kept."""
    if 0 < top_k < len(row):
        row[row < np.partition(row, -top_k)[-top_k]] = -np.inf
    if top_p < 1.0:
        kept = np.flatnonzero(row > -np.inf)
        order = kept[np.argsort(row[kept], kind="stable")]  # from the least likely
        reached = np.cumsum(_probabilities(row[order]))
        reached[-1] = np.inf  # the likeliest stays whatever is asked for
        row[order[reached <= 1 - top_p]] = -np.inf


def _probabilities(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(), dtype=np.float64)
    found: np.ndarray = weights / weights.sum()
    return found


def _drawn(scores: np.ndarray, number: float) -> int:
    """The token at which the probabilities, added up, pass a number between 0 and 1."""
    possible = np.flatnonzero(scores > -np.inf)
    reached = np.cumsum(_probabilities(scores[possible]))
    return int(possible[min(int(np.searchsorted(reached, number, side="right")), len(possible) - 1)])
