"""How far a transcript is from a reference text: error rates, their normalisers, and where the texts differ.

>>> result = score("Three, seven one.", "three eleven one", normaliser="digits")
>>> result.summary, [piece.kind for piece in result.differences]
('WER 33.3 %', ['equal', 'substitute', 'equal'])
"""

from workbench.text.aligned import aligned_text
from workbench.text.normalisers import NORMALISERS, Normaliser, find_normaliser
from workbench.text.rates import Counts, Difference, ErrorRates, Score, pool_scores, score

__all__ = [
    "NORMALISERS",
    "Counts",
    "Difference",
    "ErrorRates",
    "Normaliser",
    "Score",
    "aligned_text",
    "find_normaliser",
    "pool_scores",
    "score",
]
