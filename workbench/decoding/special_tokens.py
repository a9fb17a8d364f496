"""Log-probabilities of text tokens, from a CTC head that also emits special tokens: tags and control tokens.

The probability of the special tokens is added to that of the blank. After collapsing, a path with them equals the path
with blanks in their place, so the scores stay exact probabilities of the text tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.decoding.ctc_beam.logits import log_probabilities


def text_log_probabilities(logits: np.ndarray, width: int, blank: int, special_ids: Sequence[int]) -> np.ndarray:
    """Returns ln P of each token in each frame, float64 [frames, vocabulary], with special tokens as blanks.

    Args:
        logits: [frames, vocabulary], logits or log-probabilities.
        width: the size of the vocabulary.
        blank: the index of the blank.
        special_ids: indices of tokens without text; the blank may be among them.

    Raises `BadInput` as `workbench.decoding.ctc_beam.logits.log_probabilities` does.
    """
    log_probs = log_probabilities(logits, width)
    other_ids = sorted(set(special_ids) - {blank})
    if other_ids:
        log_probs[:, blank] = np.logaddexp.reduce(log_probs[:, [blank, *other_ids]], axis=1)
        log_probs[:, other_ids] = -np.inf
    return log_probs
