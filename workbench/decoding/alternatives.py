"""The likeliest tokens of each step of a language model, with the model's own log-probabilities.

They come from the logits of the network, before penalties, temperature, `top_k` and `top_p`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.core.errors import BadInput
from workbench.decoding.generation import Decoding

TRACED = 10  # alternatives of each token in a trace
Watch = Callable[[int, np.ndarray, np.ndarray], None]
"""A function that is called before a token of a row is returned.

Its arguments are the row, and the ids int64 [k] and log-probabilities float64 [k] of the likeliest tokens at that step,
likeliest first."""


def likeliest(logits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k = min(count, vocabulary) likeliest tokens: ids int64 [rows, k], log-probabilities float64 [rows,
    k].

    The log-probability is the logit minus the logarithm of the sum of all exponentials, in float64. Among equally
    likely tokens the lower id comes first. A logit of minus infinity or NaN belongs to an impossible token: its
    log-probability is minus infinity.

    Args:
        logits: [rows, vocabulary].
    """
    rows, vocabulary = logits.shape
    count = min(count, vocabulary)
    ids, logprobs = np.empty((rows, count), dtype=np.int64), np.empty((rows, count), dtype=np.float64)
    for row, row_logits in enumerate(logits):
        scores = np.where(np.isnan(row_logits), -np.inf, row_logits.astype(np.float64))
        threshold = np.partition(scores, vocabulary - count)[vocabulary - count] if count else np.inf
        candidates = np.flatnonzero(scores >= threshold)
        ids[row] = candidates[np.argsort(-scores[candidates], kind="stable")[:count]]
        logprobs[row] = scores[ids[row]] - _log_sum_exp(scores) if np.isfinite(scores.max()) else -np.inf
    return ids, logprobs


def _log_sum_exp(scores: np.ndarray) -> float:
    maximum = scores.max()
    return float(maximum + np.log(np.exp(scores - maximum).sum()))


def check_alternatives(decoding: Decoding) -> None:
    """Raises `BadInput` for alternatives together with beam search, whose hypotheses change at every step."""
    if decoding.alternatives and decoding.beam_size > 1:
        raise BadInput(
            f"alternatives is {decoding.alternatives} and beam_size {decoding.beam_size}, and only a text written "
            "token by token has alternatives; set beam_size to 1, or alternatives to 0"
        )


class AlternativesRecorder:
    """A `Watch` that records the alternatives of one row.

    Args:
        row: the row to record; others are ignored.
    """

    def __init__(self, row: int = 0):
        self.row = row
        self.steps: list[tuple[np.ndarray, np.ndarray]] = []  # ids and log-probabilities of each token

    def __call__(self, row: int, ids: np.ndarray, logprobs: np.ndarray) -> None:
        """Stores the alternatives of one step; see `Watch`."""
        if row == self.row:
            self.steps.append((ids, logprobs))

    def stages(self) -> dict[str, np.ndarray]:
        """Returns the stages `tokens.alternatives`, int64 [tokens, k], and `tokens.logprobs`, float32 [tokens, k]."""
        ids, logprobs = ([step[part] for step in self.steps] or [np.empty(0)] for part in (0, 1))
        shape = (len(self.steps), -1) if self.steps else (0, 0)
        return {
            "tokens.alternatives": np.reshape(ids, shape).astype(np.int64),
            "tokens.logprobs": np.reshape(logprobs, shape).astype(np.float32),
        }
