"""Log-probabilities of spoken tokens, from a CTC head that also writes tags and control tokens.

The probability of these other tokens is added to that of the blank. After collapsing, a path with them equals the path
with blanks in their place, so the scores stay exact probabilities of the spoken tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.decoding.ctc_beam.logits import log_probabilities


def spoken_log_probabilities(logits: np.ndarray, width: int, blank: int, unspoken: Sequence[int]) -> np.ndarray:
    """Returns ln P of each token in each frame, float64 [frames, vocabulary], with unspoken tokens as blanks.

    Args:
        logits: [frames, vocabulary], logits or log-probabilities.
        width: the size of the vocabulary.
        blank: the index of the blank.
        unspoken: indices of tokens that are not speech; the blank may be among them.

    Raises `BadInput` as `workbench.decoding.ctc_beam.logits.log_probabilities` does.
    """
    log_probs = log_probabilities(logits, width)
    non_speech = sorted(set(unspoken) - {blank})
    if non_speech:
        log_probs[:, blank] = np.logaddexp.reduce(log_probs[:, [blank, *non_speech]], axis=1)
        log_probs[:, non_speech] = -np.inf
    return log_probs
