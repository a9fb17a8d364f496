"""What happens to hypotheses in a frame, as arrays: the old ones stay, new ones extend them by a token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.decoding.ctc_beam.knowledge import Columns


@dataclass
class Stays:
    """The rows of the active utterances after a frame in which they gain no token; float64 [utterances x rows]."""

    blank_mass: np.ndarray
    token_mass: np.ndarray
    mass: np.ndarray
    score: np.ndarray
    joined: np.ndarray  # int64 [m]: rows whose parent's alignments joined them


@dataclass
class Extensions:
    """New hypotheses. `parents` are flat indices of rows; the columns hold what changes against the parent."""

    parents: np.ndarray
    tokens: np.ndarray
    blank_mass: np.ndarray
    token_mass: np.ndarray
    mass: np.ndarray
    ints: Columns
    floats: Columns
    word: np.ndarray  # the word that the token completes, or -1
    score: np.ndarray

    def take(self, wanted: np.ndarray) -> Extensions:
        """Returns the hypotheses that a mask or indices choose."""
        return Extensions(
            self.parents[wanted],
            self.tokens[wanted],
            self.blank_mass[wanted],
            self.token_mass[wanted],
            self.mass[wanted],
            {name: column[wanted] for name, column in self.ints.items()},
            {name: column[wanted] for name, column in self.floats.items()},
            self.word[wanted],
            self.score[wanted],
        )

    def __len__(self) -> int:
        return len(self.parents)


def among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Returns which keys are in a sorted array, bool [n]."""
    if not len(known):
        return np.zeros(len(keys), dtype=bool)
    found = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return known[found] == keys
