"""A guess at Kaldi's dither: noise that a filter bank adds to the samples before it transforms them.

Noise cannot be predicted, but its size can: white noise of a deviation s on samples of full scale 32768 adds a known
power to each band, and a known variance that grows with the power of the sound. Both are measured once from the noise
of the project's own filter bank. funasr's front end has s = 1 unless it is told otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from workbench.compare.guesses.guess import FILTER_BANK, Guess, Scene, table

_SAMPLES = 16000 * 20
_MIN_VALUES = 800
_DEVIATION_MARGIN = 0.25  # the share by which measured and expected deviations may differ
_STRATA = 6


def dither(scene: Scene) -> Iterator[Guess]:
    """Yields dither, if the differences of a filter bank have its deviation, for weak and for strong sound alike."""
    if scene.stage != FILTER_BANK or scene.reference.ndim != 2 or scene.reference.size < _MIN_VALUES:
        return
    mean, degrees = _noise(scene.reference.shape[1])
    r, c = table(scene.reference), table(scene.candidate)
    if not (np.isfinite(r).all() and np.isfinite(c).all()) or c.max() > 60:
        return
    power, candidate_power = np.exp(r), np.exp(c)
    strong = power > 100 * mean
    if strong.sum() < 100:
        return
    # |S + W|^2 - |S|^2 has the variance 2 |S|^2 N over the degrees of freedom of the band, for |S|^2 far above N.
    size = (candidate_power - power) / np.sqrt(2 * power * mean / degrees)
    deviation = math.sqrt(float(np.square(size[strong]).mean()))
    if not deviation > 0:
        return
    order = np.argsort((power / mean)[strong])
    for stratum in np.array_split(size[strong][order], _STRATA):
        if not abs(float(np.sqrt(np.square(stratum).mean())) / deviation - 1) <= _DEVIATION_MARGIN:
            return
        if abs(float(stratum.mean())) > 0.3 * deviation:
            return
    if abs(_neighbours(size)) > 0.2:
        return
    weak = power < 0.1 * deviation**2 * mean
    if weak.sum() >= 50:
        log_ratio = float(np.log(candidate_power[weak] / (deviation**2 * np.broadcast_to(mean, r.shape)[weak])).mean())
        if abs(log_ratio) > 0.35:
            return
    funasr_clause = ": that is funasr's dither" if abs(deviation - 1) < _DEVIATION_MARGIN else ""
    words = (
        f"it has white noise of a deviation of {deviation:.2g} on samples of full scale 32768, as dither "
        f"adds{funasr_clause}"
    )
    yield Guess("dither", words, lambda rows: r, is_verified=True)


def _neighbours(size: np.ndarray) -> float:
    """Returns the correlation of frames two apart, which share half of their samples but no noise."""
    earlier, later = size[:-2].ravel(), size[2:].ravel()
    scale = float(np.sqrt(np.square(earlier).sum() * np.square(later).sum()))
    return float((earlier * later).sum()) / scale if scale else 0.0


@lru_cache(maxsize=4)
def _noise(bands: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns power and degrees of freedom of each band for white noise of deviation 1 on 16 bits."""
    from workbench.audio.fbank import FbankOptions, fbank

    samples = np.random.default_rng(0).standard_normal(_SAMPLES) / 32768
    powers = np.exp(fbank(samples.astype(np.float32), FbankOptions(num_mels=bands)).astype(np.float64))
    mean = powers.mean(axis=0)
    return mean, np.square(mean) / powers.var(axis=0)
