"""CTC without a language model: the best path and the frames of its tokens.

Graves et al., "Connectionist Temporal Classification", ICML 2006. Works on numpy arrays of any runtime.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CtcToken:
    """A token of a CTC path with its frames, from `first` to before `end`."""

    id: int
    first: int
    end: int


@dataclass(frozen=True)
class BestPath:
    """The likeliest token of each frame."""

    ids: np.ndarray  # whole numbers [frames]
    probabilities: np.ndarray  # [frames]; 1 for blanks, which have no token to be sure of


def greedy(scores: np.ndarray, blank: int = 0) -> list[CtcToken]:
    """Returns the tokens on the best path of scores [frames, vocabulary]: repeats collapsed, blanks dropped.

    The frames of a token are those of its run in the path. No alignment of this token sequence is more likely, so they
    are also its forced alignment.
    """
    return collapse(scores.argmax(axis=1), blank)


def collapse(path: np.ndarray, blank: int = 0) -> list[CtcToken]:
    """Returns the tokens of a path of ids [frames]: repeats collapsed, blanks dropped."""
    if not len(path):
        return []
    starts = np.flatnonzero(np.concatenate([[True], path[1:] != path[:-1]]))
    ends = np.append(starts[1:], len(path))
    return [CtcToken(int(path[s]), int(s), int(e)) for s, e in zip(starts, ends, strict=True) if path[s] != blank]
