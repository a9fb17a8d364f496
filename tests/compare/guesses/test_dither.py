"""Dither in fbank features is recognised by its noise level in quiet and loud frames; other noise is not."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.audio.fbank import FbankOptions, fbank
from workbench.compare.guesses.dither import dither
from workbench.compare.guesses.guess import Scene


def recording(seed: int) -> np.ndarray:
    """Two seconds of vowel-like sound between pauses of weak noise."""
    draw = np.random.default_rng(seed)
    time = np.arange(32000) / 16000
    pitch = 110 + 40 * draw.random()
    voice = sum(np.sin(2 * np.pi * pitch * n * time + draw.random()) / n for n in range(1, 30))
    loud = 0.05 * np.clip(np.sin(2 * np.pi * 1.5 * time), 0, None)
    return np.asarray(voice * loud + 1e-3 * draw.standard_normal(len(time)), np.float32)


def dither_hints(reference: np.ndarray, candidate: np.ndarray) -> list[str]:
    return [each.words for each in dither(Scene("frontend.fbank", reference, candidate, 1e-6))]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("deviation", [1.0, 0.2])
def test_dither_is_recognised(seed: int, deviation: float) -> None:
    samples = recording(seed)
    [hint] = dither_hints(fbank(samples), fbank(samples, FbankOptions(dither=deviation), seed=seed))
    assert hint.startswith("it has white noise of a deviation of ") and ("funasr's" in hint) == (deviation == 1)
    assert abs(float(hint.split()[8]) / deviation - 1) < 0.3


@pytest.mark.parametrize("number", range(9))
def test_other_changes_of_a_filter_bank_are_not_dither(number: int) -> None:
    samples, draw = recording(3), np.random.default_rng(number)
    right = fbank(samples)
    others = (
        lambda: right + 0.01 * draw.standard_normal(right.shape),
        lambda: right + 0.1 * draw.standard_normal(right.shape),
        lambda: right * (1 + 0.01 * draw.standard_normal(right.shape)),
        lambda: fbank(samples, FbankOptions(window="hanning")),
        lambda: fbank(samples, FbankOptions(preemphasis=0.9)),
        lambda: fbank(samples, FbankOptions(low_hz=0.0)),
        lambda: fbank(np.float32(1.01) * samples),
        lambda: np.log(np.exp(right) + 1),
        lambda: right + np.log(np.square(1 + 0.1 * draw.standard_normal(right.shape))),
    )
    assert dither_hints(right, np.asarray(others[number](), np.float32)) == []


def test_dither_is_not_searched_for_outside_the_fbank_stage() -> None:
    right = fbank(recording(1))
    noisy = fbank(recording(1), FbankOptions(dither=1.0))
    assert list(dither(Scene("frontend.lfr", right, noisy, 1e-6))) == []
