"""What happens to hypotheses in a frame, as arrays: the old ones stay, new ones extend them by a token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.decoding.ctc_beam.knowledge import Columns
from workbench.decoding.ctc_beam.rows import BLANK_MASS, MASS, TOKEN_MASS


@dataclass
class UnextendedRows:
    """Rows after a frame in which they gain no token; float64 [utterances, rows], or flat."""

    masses: np.ndarray  # float64 [3, ...]: the columns BLANK_MASS, TOKEN_MASS and MASS
    score: np.ndarray

    @property
    def blank_mass(self) -> np.ndarray:
        """ln P of the alignments that end in a blank."""
        values: np.ndarray = self.masses[BLANK_MASS]
        return values

    @property
    def token_mass(self) -> np.ndarray:
        """ln P of the alignments that end in the last token."""
        values: np.ndarray = self.masses[TOKEN_MASS]
        return values

    @property
    def mass(self) -> np.ndarray:
        """ln P of all alignments."""
        values: np.ndarray = self.masses[MASS]
        return values

    def of_utterances(self, utterances: np.ndarray) -> UnextendedRows:
        """Returns the rows of some utterances."""
        return UnextendedRows(self.masses.take(utterances, axis=1), self.score.take(utterances, axis=0))


@dataclass
class Extensions:
    """New hypotheses. `parents` are flat indices of all rows; the columns hold what changes against the parent."""

    parents: np.ndarray
    utterances: np.ndarray  # index of each hypothesis's utterance in the frame
    tokens: np.ndarray
    blank_mass: np.ndarray
    token_mass: np.ndarray
    mass: np.ndarray
    ints: Columns
    floats: Columns
    word: np.ndarray  # the word that the token completes, or -1
    score: np.ndarray

    def take(self, indices: np.ndarray) -> Extensions:
        """Returns the hypotheses at these indices."""
        return Extensions(
            self.parents.take(indices),
            self.utterances.take(indices),
            self.tokens.take(indices),
            self.blank_mass.take(indices),
            self.token_mass.take(indices),
            self.mass.take(indices),
            {name: column.take(indices) for name, column in self.ints.items()},
            {name: column.take(indices) for name, column in self.floats.items()},
            self.word.take(indices),
            self.score.take(indices),
        )

    def __len__(self) -> int:
        return len(self.parents)


def is_among(keys: np.ndarray, sorted_keys: np.ndarray) -> np.ndarray:
    """Returns which keys are in a sorted array, bool [n]."""
    if not len(sorted_keys):
        return np.zeros(len(keys), dtype=bool)
    return sorted_keys.take(sorted_keys.searchsorted(keys), mode="clip") == keys
