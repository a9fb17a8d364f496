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
    found = log_probabilities(logits, width)
    silent = sorted(set(unspoken) - {blank})
    if silent:
        found[:, blank] = np.logaddexp.reduce(found[:, [blank, *silent]], axis=1)
        found[:, silent] = -np.inf
    return found
