"""The level that detectors get to hear: what is quiet is raised, what is loud enough is left as it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.audio.levels import ENOUGH_DB, MOST_DB, loud_level, raised
from workbench.audio.spans import frame_levels

RATE = 16_000


def bursts_of_tone(level: float, seconds: float = 4.0) -> np.ndarray:
    """Every other second a tone whose mean power is `level` dB of full scale."""
    time = np.arange(round(seconds * RATE)) / RATE
    tone = np.sqrt(2) * np.sin(2 * np.pi * 400 * time) * (time % 2 < 1)
    return (tone * 10 ** (level / 20)).astype(np.float32)


def test_what_is_loud_enough_is_left_as_it_is() -> None:
    samples = bursts_of_tone(ENOUGH_DB + 0.1)
    assert raised(samples) is samples
    assert raised(samples, ENOUGH_DB + 0.2) is not samples
    none = np.zeros(0, np.float32)
    assert raised(none) is none


@given(level=st.floats(ENOUGH_DB - MOST_DB, ENOUGH_DB - 0.1))
def test_what_is_quieter_becomes_just_loud_enough(level: float) -> None:
    louder = raised(bursts_of_tone(level))
    assert loud_level(frame_levels(louder)) == pytest.approx(ENOUGH_DB, abs=0.05)
    np.testing.assert_allclose(louder, bursts_of_tone(ENOUGH_DB), atol=1e-3)


def test_the_gain_is_bounded() -> None:
    assert loud_level(frame_levels(raised(bursts_of_tone(-95.0)))) == pytest.approx(-95.0 + MOST_DB, abs=0.1)
    assert not raised(np.zeros(RATE, np.float32)).any()


def test_a_click_does_not_count_and_an_offset_neither() -> None:
    quiet = bursts_of_tone(-50.0)
    clicked = quiet.copy()
    clicked[RATE // 2 : RATE // 2 + 800] = 0.9  # 50 ms
    far = raised(clicked)[2 * RATE : 3 * RATE]
    assert 10 * np.log10(np.mean((far - far.mean()) ** 2)) == pytest.approx(ENOUGH_DB, abs=0.3)
    np.testing.assert_allclose(raised(quiet + np.float32(0.3)), raised(quiet), atol=1e-3)


def test_the_loudest_half_second_is_the_level() -> None:
    levels = np.full(1000, -60.0, np.float32)
    levels[100:149] = -10.0
    assert loud_level(levels) == -60.0
    levels[149] = -20.0
    assert loud_level(levels) == -20.0
    assert loud_level(levels[:1]) == -60.0 and loud_level(levels[:0]) == -100.0
