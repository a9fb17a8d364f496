"""Guesses at the filter bank of a port that dumps stacked frames or features only.

The reference shows how many frames are stacked, and what CMVN adds and multiplies. So the candidate's filter bank can
be computed back. A guess at that filter bank is met if it predicts the stage that the port has dumped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from workbench.audio.lfr import num_stacked, stack_frames
from workbench.compare.guesses.dither import dither
from workbench.compare.guesses.filter_bank import filter_banks
from workbench.compare.guesses.guess import FILTER_BANK, Guess, Rows, Scene, is_close, relative_l2, table
from workbench.compare.guesses.heard import other_sounds

LATER_STAGES = ("frontend.lfr", "frontend.features")
"""Stages that are computed from the filter bank alone."""

_ROUNDING = 32 * 2.0**-24  # relative L2 of a filter bank that is computed back
_MAX_STACKED = 32  # frames


@dataclass(frozen=True)
class _Steps:
    """What the reference does with its filter bank: stacks m frames at every n-th, multiplies and adds."""

    m: int
    n: int
    scale: np.ndarray  # [m * bands]
    shift: np.ndarray

    def stacked(self, energies: np.ndarray) -> np.ndarray:
        """Returns energies [frames, bands] as stacks [stacks, m * bands]."""
        return stack_frames(energies, self.m, self.n)

    def forward(self, energies: np.ndarray) -> np.ndarray:
        """Returns the stage [stacks, m * bands] of energies [frames, bands]."""
        return self.stacked(energies) * self.scale + self.shift

    def back(self, values: np.ndarray) -> np.ndarray:
        """Returns the energies [frames, bands] of a stage, without the copies behind the last frame."""
        stacked = ((values - self.shift) / self.scale).reshape(len(values), self.m, -1)
        frames = np.arange((len(values) - 1) * self.n + self.m - (self.m - 1) // 2)
        places = frames + (self.m - 1) // 2
        stacks = np.minimum(places // self.n, len(values) - 1)
        energies: np.ndarray = stacked[stacks, places - stacks * self.n]
        least = (len(values) - 1) * self.n + 1
        while len(energies) > least and np.allclose(energies[-1], energies[-2], rtol=1e-5, atol=1e-5):
            energies = energies[:-1]
        return energies


def front_ends(scene: Scene) -> Iterator[Guess]:
    """Yields what explains the filter bank that the candidate does not have."""
    if not lacks_filter_bank(scene.stage, scene.candidate_stages) or FILTER_BANK not in scene.reference_stages:
        return
    energies, candidate = scene.reference_stages[FILTER_BANK], scene.candidate
    if scene.samples is None or energies.ndim != 2 or candidate.shape[1:] != scene.reference.shape[1:]:
        return
    steps = _steps(energies, scene.reference)
    if steps is None or not len(candidate) or not np.isfinite(candidate).all():
        return
    candidate_energies = steps.back(table(candidate))
    hidden = len(energies) - len(candidate_energies)
    if 0 < hidden < steps.n:  # the last stack may begin before the last frames, which it then does not hold
        energies = energies[:-hidden]
    # CMVN takes the mean away and so makes the rounding of the filter bank larger, relative to what remains.
    size = float(np.sqrt(np.square(steps.scale).mean()) * np.linalg.norm(steps.stacked(energies)))
    reference_size = float(np.linalg.norm(table(scene.reference)))
    limit = max(scene.allowed, _ROUNDING * size / reference_size) if reference_size else scene.allowed
    inner = replace(
        scene,
        stage=FILTER_BANK,
        reference=energies,
        candidate=candidate_energies,
        allowed=max(scene.allowed * reference_size / size, _ROUNDING),
    )
    families = [filter_banks, other_sounds]
    if energies.shape == candidate_energies.shape:
        families.append(dither)
    for family in families:
        is_found = False
        for guess in family(inner):
            is_found = True
            expected = _Expected(steps, guess, candidate_energies)
            if guess.is_verified or relative_l2(expected(np.arange(len(candidate))), table(candidate)) <= limit:
                words = f"computed back to the filter bank that the candidate does not have, {guess.words}"
                yield replace(guess, words=words, expected=expected, first=0, is_verified=True)
        if is_found:
            return


def lacks_filter_bank(stage: str, candidate_stages: Mapping[str, np.ndarray]) -> bool:
    """Returns whether a stage belongs to a front end whose filter bank is not dumped."""
    return stage in LATER_STAGES and FILTER_BANK not in candidate_stages


@dataclass
class _Expected:
    """The stage under a guess at its filter bank."""

    steps: _Steps
    guess: Guess
    candidate_energies: np.ndarray
    _stage: np.ndarray | None = None

    def __call__(self, rows: Rows) -> np.ndarray:
        if self._stage is None:
            first, count = self.guess.first, len(self.candidate_energies)
            predicted = self.guess.expected(np.arange(first, count))
            self._stage = self.steps.forward(np.concatenate([self.candidate_energies[:first], predicted]))
        return self._stage[rows]


def _steps(energies: np.ndarray, values: np.ndarray) -> _Steps | None:
    """Returns how a stage of the reference follows from its filter bank; None if it does not in this way."""
    m, rest = divmod(values.shape[1], energies.shape[1]) if values.ndim == 2 else (0, 1)
    if rest or not 0 < m <= _MAX_STACKED:
        return None
    for n in range(m, 0, -1):
        if num_stacked(len(energies), n) != len(values):
            continue
        stacked = stack_frames(energies, m, n).astype(np.float64)
        spread = stacked - stacked.mean(axis=0)
        power = np.square(spread).sum(axis=0)
        is_flat = power <= 1e-9 * len(stacked)
        scale = np.where(is_flat, 1.0, (spread * values).sum(axis=0) / np.where(is_flat, 1.0, power))
        shift = values.mean(axis=0, dtype=np.float64) - scale * stacked.mean(axis=0)
        if (scale != 0).all() and is_close(stacked * scale + shift, values, _ROUNDING):
            return _Steps(m, n, scale, shift)
    return None
