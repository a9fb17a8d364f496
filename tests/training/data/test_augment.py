import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.tones import tone
from workbench.training.data.augment import (
    COLOURS,
    AugmentOptions,
    MaskOptions,
    add_upper_band,
    bursts,
    change_tempo,
    distorted,
    fast_length,
    filtered,
    masked,
    mu_law,
    noise,
    passband,
    power,
    quantised,
    random_equaliser,
    reverberated,
    warp,
    with_noise,
)

RATE = 16_000


def sine(hertz, seconds=1.0):
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def pitch(samples, rate=RATE):
    return np.argmax(np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 1 << 16))) * rate / (1 << 16)


def decibels(ratio):
    return 10 * np.log10(ratio)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("snr_db", [5.0, 10.0, 40.0])
def test_added_noise_has_the_requested_signal_to_noise_ratio(colour, snr_db):
    speech = sine(500)
    noisy = with_noise(speech, noise(RATE, colour, np.random.default_rng(3)), power(speech), snr_db)
    assert decibels(power(speech) / power(noisy - speech)) == pytest.approx(snr_db, abs=0.01)


def test_noise_colours_have_the_spectral_slopes_of_their_definitions():
    def octaves(colour):
        spectrum = np.square(np.abs(np.fft.rfft(noise(20 * RATE, colour, np.random.default_rng(0)))))
        hertz = np.linspace(0, RATE / 2, len(spectrum))
        low, high = ((hertz > f) & (hertz < 2 * f) for f in (250, 2000))
        return decibels(spectrum[high].mean() / spectrum[low].mean())

    assert octaves("white") == pytest.approx(0, abs=0.5)
    assert octaves("pink") == pytest.approx(-9, abs=1)  # 3 dB an octave
    assert octaves("brown") == pytest.approx(-18, abs=1)


@pytest.mark.parametrize("tempo", [0.8, 1.25])
@pytest.mark.parametrize("rate", [8000, 16000])
def test_tempo_change_alters_duration_and_preserves_pitch(tempo, rate):
    original = tone(3, 1.0, rate)
    changed = change_tempo(original, tempo, rate)
    assert len(changed) == pytest.approx(len(original) / tempo, abs=1)
    assert pitch(changed, rate) == pytest.approx(pitch(original, rate), rel=0.003)
    assert power(changed[400:-400]) == pytest.approx(power(original), rel=0.02)


@pytest.mark.parametrize("ratio", [0.85, 1.18])
def test_warp_scales_length_and_pitch_by_the_same_ratio(ratio):
    warped = warp(sine(500), ratio)
    assert len(warped) == pytest.approx(RATE / ratio, abs=2)
    assert pitch(warped) == pytest.approx(500 * ratio, rel=0.003)


def test_band_pass_filter_keeps_the_passband_and_removes_other_frequencies():
    inside, below, above = sine(1000), sine(100), sine(5000)
    output = filtered(inside + below + above, passband(300, 3400))
    middle = slice(2000, -2000)
    assert power((output - inside)[middle]) < 1e-6 * power(inside)
    np.testing.assert_allclose(filtered(inside, passband(0, 8200)), inside, atol=1e-5)


def test_equaliser_adds_no_delay():
    click = np.zeros(2000, dtype=np.float32)
    click[1000] = 1.0
    output = filtered(click, random_equaliser(np.random.default_rng(5)))
    assert np.argmax(np.abs(output)) == 1000


def test_upper_band_mirrors_the_band_below_4_khz_and_leaves_that_band_unchanged():
    for seed in range(10):
        high, low = (add_upper_band(sine(hertz), np.random.default_rng(seed)) - sine(hertz) for hertz in (3500, 500))
        middle = slice(1000, -1000)
        assert pitch(high) == pytest.approx(4500, abs=2)
        assert pitch(low) == pytest.approx(7500, abs=2)
        lost = decibels(power(sine(3500)) / power(high[middle]))
        assert 2 < lost < 30
        assert decibels(power(sine(500)) / power(low[middle])) > lost + 15  # without the strong low notes of vowels


def test_reverberation_starts_after_the_sound_and_decays():
    click = np.zeros(RATE, dtype=np.float32)
    click[4000] = 1.0
    output = reverberated(click, np.random.default_rng(4))
    assert len(output) == RATE
    assert np.abs(output[:3999]).max() < 1e-5  # nothing before
    assert output[4000] == pytest.approx(1.0, abs=1e-4)
    assert power(output[4100:6000]) > 100 * power(output[-1000:])


def test_mu_law_noise_is_that_of_eight_bit_coding():
    for level in (1.0, 0.1, 0.01):
        speech = sine(440) * np.float32(level)
        assert 28 < decibels(power(speech) / power(mu_law(speech) - speech)) < 45


def test_quantised_samples_are_int16_steps():
    output = quantised(np.array([0.1, -1.5, 1.5, 0.0], dtype=np.float32))
    np.testing.assert_array_equal(output * 32768, [3277, -32768, 32767, 0])


def test_noise_bursts_are_silent_most_of_the_time():
    sounds = bursts(3 * RATE, np.random.default_rng(0))
    assert np.abs(sounds).max() > 0
    assert np.mean(np.abs(sounds) > 1e-3) < 0.5


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1700, 9000))
@settings(deadline=None, max_examples=40)
def test_random_distortion_is_finite_within_full_scale_and_repeatable(seed, count):
    samples = np.zeros(count, dtype=np.float32)
    samples[800:-800] = sine(700)[: count - 1600]
    active = samples != 0
    every = AugmentOptions(
        equalised=0.7, reverberant=0.5, noisy=0.7, bursts=0.5, band_limited=0.6, line_noise=0.5,
        clipped=0.4, coded=0.5, offset=0.5, quantised=0.5,
    )  # fmt: skip
    crowd = lambda n: sine(300)[:n]  # noqa: E731
    output = distorted(samples, active, np.random.default_rng(seed), every, crowd)
    assert output.dtype == np.float32 and output.shape == samples.shape
    assert np.isfinite(output).all() and np.abs(output).max() <= 1.03  # full scale, an offset
    np.testing.assert_array_equal(output, distorted(samples, active, np.random.default_rng(seed), every, crowd))


@given(seed=st.integers(0, 2**32 - 1), frames=st.integers(1, 300))
@settings(deadline=None, max_examples=50)
def test_feature_masks_replace_whole_frames_and_bands_with_the_mean_only(seed, frames):
    features = np.random.default_rng(seed).normal(size=(frames, 80)).astype(np.float32)
    before = features.copy()
    options = MaskOptions(time_masks_per_second=2.0, max_frames=10, band_masks=2, max_bands=12)
    hidden = masked(features, np.random.default_rng(seed), options)
    np.testing.assert_array_equal(features, before)
    changed = hidden != features
    mean = features.mean(axis=0)
    np.testing.assert_array_equal(hidden[changed], np.broadcast_to(mean, features.shape)[changed])
    bands = changed.all(axis=0)
    rest = changed[:, ~bands]
    assert bands.sum() <= 24 or frames <= 10
    assert (rest.all(axis=1) | ~rest.any(axis=1)).all()  # the remaining frames are complete


def test_masks_can_be_switched_off():
    features = np.ones((50, 80), dtype=np.float32)
    features[::2] = 0
    no_masks = MaskOptions(time_masks_per_second=0.0, band_masks=0)
    np.testing.assert_array_equal(masked(features, np.random.default_rng(0), no_masks), features)


@given(st.integers(1, 1 << 22))
def test_fast_fft_length_is_at_least_the_count_and_little_longer(count):
    size = fast_length(count)
    assert count <= size < max(1.35 * count, count + 2)
    while size % 2 == 0:
        size //= 2
    assert size in (1, 3, 5)
