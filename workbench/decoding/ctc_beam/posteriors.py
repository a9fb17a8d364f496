"""The confidence of a search in each word: the posterior probability of the words of the best hypothesis.

Wessel et al., "Confidence measures for large vocabulary continuous speech recognition", IEEE Transactions on Speech and
Audio Processing 9(3), 2001, here over an n-best list.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from workbench.decoding.ctc_beam.hypothesis import Hypothesis


def posteriors(hypotheses: Sequence[Hypothesis]) -> list[float]:
    """Returns for each word of the first hypothesis the share of the n-best list's probability that has it there.

    Without a lexicon, for each token. The longest common blocks of two hypotheses say which of their words stand at
    the same place. A longer list gives better estimates; a list of one gives 1.

    Args:
        hypotheses: an n-best list, best first.
    """
    if not hypotheses:
        return []
    scores = np.array([each.score for each in hypotheses])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    best, *_ = units = [each.tokens if each.words is None else each.words for each in hypotheses]
    totals = np.zeros(len(best))
    for share, other_units in zip(shares, units, strict=True):
        for block in SequenceMatcher(None, best, other_units, autojunk=False).get_matching_blocks():
            totals[block.a : block.a + block.size] += share
    return np.minimum(totals, 1.0).tolist()
