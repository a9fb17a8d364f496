"""Level adjustment before voice detection: quiet samples are amplified, loud samples stay unchanged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.audio.levels import ENOUGH_DB, MAX_DB, amplified, loud_level, noise_like
from workbench.audio.spans import frame_levels
from workbench.training.data.augment import noise

RATE = 16_000


def bursts_of_tone(level: float, seconds: float = 4.0) -> np.ndarray:
    """Returns a tone in every other second; its mean power is `level` dB of full scale."""
    time = np.arange(round(seconds * RATE)) / RATE
    tone = np.sqrt(2) * np.sin(2 * np.pi * 400 * time) * (time % 2 < 1)
    return (tone * 10 ** (level / 20)).astype(np.float32)


def test_loud_samples_stay_unchanged() -> None:
    samples = bursts_of_tone(ENOUGH_DB + 0.1)
    assert amplified(samples) is samples
    assert amplified(samples, ENOUGH_DB + 0.2) is not samples
    none = np.zeros(0, np.float32)
    assert amplified(none) is none


@given(level=st.floats(ENOUGH_DB - MAX_DB, ENOUGH_DB - 0.1))
def test_quiet_samples_are_amplified_to_the_target_level(level: float) -> None:
    louder = amplified(bursts_of_tone(level))
    assert loud_level(frame_levels(louder)) == pytest.approx(ENOUGH_DB, abs=0.05)
    np.testing.assert_allclose(louder, bursts_of_tone(ENOUGH_DB), atol=1e-3)


def test_the_gain_is_bounded() -> None:
    assert loud_level(frame_levels(amplified(bursts_of_tone(-95.0)))) == pytest.approx(-95.0 + MAX_DB, abs=0.1)
    assert not amplified(np.zeros(RATE, np.float32)).any()


def test_click_and_dc_offset_do_not_affect_the_gain() -> None:
    quiet = bursts_of_tone(-50.0)
    clicked = quiet.copy()
    clicked[RATE // 2 : RATE // 2 + 800] = 0.9  # 50 ms
    distant = amplified(clicked)[2 * RATE : 3 * RATE]
    assert 10 * np.log10(np.mean((distant - distant.mean()) ** 2)) == pytest.approx(ENOUGH_DB, abs=0.3)
    np.testing.assert_allclose(amplified(quiet + np.float32(0.3)), amplified(quiet), atol=1e-3)


def test_loud_level_is_the_level_of_the_loudest_half_second() -> None:
    levels = np.full(1000, -60.0, np.float32)
    levels[100:149] = -10.0
    assert loud_level(levels) == -60.0
    levels[149] = -20.0
    assert loud_level(levels) == -20.0
    assert loud_level(levels[:1]) == -60.0 and loud_level(levels[:0]) == -100.0


@settings(max_examples=25)
@given(st.sampled_from(("white", "pink")), st.floats(0.6, 4.0), st.floats(-80.0, 0.0), st.integers(0, 2**32 - 1))
def test_noise_of_any_colour_level_and_length_is_classified_as_noise(
    colour: str, seconds: float, level: float, seed: int
) -> None:
    samples = noise(round(seconds * RATE), colour, np.random.default_rng(seed)) * 10 ** (level / 20)
    assert noise_like(samples)


@settings(max_examples=25)
@given(st.floats(350.0, 7000.0), st.floats(0.6, 4.0), st.integers(0, 2**32 - 1))
def test_tone_in_noise_is_not_classified_as_noise(frequency: float, seconds: float, seed: int) -> None:
    time = np.arange(round(seconds * RATE)) / RATE
    samples = noise(len(time), "white", np.random.default_rng(seed)) + np.sin(2 * np.pi * frequency * time)
    assert not noise_like(samples)


def test_silence_is_classified_as_noise_and_short_samples_are_not() -> None:
    assert noise_like(np.zeros(RATE)) and not noise_like(np.zeros(700)) and not noise_like(np.zeros(0))
