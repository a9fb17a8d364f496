"""Fbank features against their definition, written out here in float64 without the library that computes them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.shared_data import SHARED, shared
from workbench.audio.fbank import FbankOptions, fbank, num_frames
from workbench.audio.read import read
from workbench.core.errors import BadInput

RATE = 16_000
FLOOR = np.log(np.finfo(np.float32).eps)


def mel(hertz: np.ndarray | float) -> np.ndarray:
    return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)


def mel_filters(size: int, bands: int = 80, low: float = 20.0) -> np.ndarray:
    """Triangles of equal width on the mel scale, [bands, size // 2 + 1] for a transform of `size` points."""
    edges = np.linspace(mel(low), mel(RATE / 2), bands + 2)
    filters = np.zeros((bands, size // 2 + 1))
    for bin_ in range(size // 2):  # the bin at half the sample rate belongs to no band
        bin_mel = mel(bin_ * RATE / size)
        for band in range(bands):
            lower, centre, upper = edges[band : band + 3]
            filters[band, bin_] = max(
                0.0, min((bin_mel - lower) / (centre - lower), (upper - bin_mel) / (upper - centre))
            )
    return filters


def slow_fbank(samples: np.ndarray, length: int = 400, shift: int = 160) -> np.ndarray:
    """Returns the filter bank frame by frame as Kaldi's documentation defines it, for samples with full scale 1."""
    scaled = samples.astype(np.float64) * 32768
    length = min(length, len(scaled))
    size = 1 << (length - 1).bit_length()
    window = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(length) / (length - 1))
    filters = mel_filters(size)
    rows = []
    for start in range(0, len(scaled) - length + 1, shift):
        frame = scaled[start : start + length]
        frame = frame - frame.mean()
        frame = frame - 0.97 * np.concatenate([frame[:1], frame[:-1]])
        power = np.abs(np.fft.rfft(frame * window, size)) ** 2
        rows.append(np.log(np.maximum(filters @ power, np.finfo(np.float32).eps)))
    return np.array(rows)


def agree(samples: np.ndarray) -> None:
    fast, slow = fbank(samples), slow_fbank(samples)
    assert fast.shape == slow.shape and fast.dtype == np.float32
    cosine = (fast * slow).sum() / np.sqrt((fast.astype(np.float64) ** 2).sum() * (slow**2).sum())
    assert cosine >= 0.9999995
    assert np.abs(fast - slow).max() <= 1.8e-3


@pytest.mark.parametrize("seconds", [14.9, 15.02, 47.3])
def test_fbank_computed_in_parts_equals_fbank_of_the_whole(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    samples = np.random.default_rng(3).standard_normal(int(seconds * RATE)).astype(np.float32) * 0.1
    parts = fbank(samples)
    monkeypatch.setattr("workbench.audio.fbank._PART_FRAMES", 1 << 30)
    np.testing.assert_array_equal(parts, fbank(samples))


def test_fbank_of_44_seconds_of_real_speech_matches_the_definition() -> None:
    shared("speech")
    files = sorted((SHARED / "speech").glob("*.wav")) + [shared("fsmn-vad/vad_example.wav")]
    samples = np.concatenate([read(path).samples for path in files])[: 44 * RATE]
    assert len(samples) == 44 * RATE
    agree(samples)


def test_fbank_of_the_shipped_samples_matches_the_definition() -> None:
    files = sorted((Path(__file__).resolve().parents[2] / "assets" / "samples").glob("*.wav"))
    if not files:
        pytest.skip("needs the recordings of assets/samples")
    for path in files:
        agree(read(path).samples)


@pytest.mark.parametrize("samples", [2, 3, 5, 17, 100, 255, 256, 257, 399, 400, 401, 559, 560, 1000])
def test_fbank_of_short_sounds_matches_the_definition(samples: int) -> None:
    noise = 0.1 * np.random.default_rng(samples).standard_normal(samples).astype(np.float32)
    assert len(fbank(noise)) == num_frames(samples) == 1 + max(0, samples - 400) // 160
    agree(noise)


def test_fbank_of_loud_noise_across_a_block_boundary_matches_the_definition() -> None:
    agree(np.random.default_rng(0).uniform(-1, 1, 61 * RATE).astype(np.float32))


def test_fbank_of_silence_and_of_a_single_sample_is_the_floor_value() -> None:
    for samples in (np.zeros(800, dtype=np.float32), np.ones(800, dtype=np.float32), np.ones(1, dtype=np.float32)):
        np.testing.assert_allclose(fbank(samples), FLOOR, atol=1e-5)


def test_frame_counts_match_the_number_of_samples() -> None:
    assert [num_frames(n) for n in (0, 1, 399, 400, 16_000, 480_000)] == [0, 1, 1, 1, 98, 2998]
    centred = FbankOptions(snip_edges=False)
    for samples in (160, 500, 16_000, 16_079, 16_080):
        assert len(fbank(np.zeros(samples, dtype=np.float32), centred)) == num_frames(samples, centred)


def test_dither_is_repeatable_and_independent_per_frame() -> None:
    options = FbankOptions(dither=1.0)
    silence = np.zeros(RATE, dtype=np.float32)
    first = fbank(silence, options, seed=1)
    np.testing.assert_array_equal(first, fbank(silence, options, seed=1))
    assert np.abs(first - fbank(silence, options, seed=2)).max() > 0.1
    # Noise shared by overlapping frames would correlate neighbours (0.6 of their samples are the same).
    centred = first - first.mean(axis=0)
    assert abs((centred[1:] * centred[:-1]).mean() / centred.var()) < 0.05
    # Unit noise through a pre-emphasised Hamming window: the expected power, up to the spread of 98 frames.
    window = np.hamming(400)
    high_band = np.exp(first[:, 79]).mean() / mel_filters(512)[79].sum()
    assert high_band == pytest.approx((window**2).sum() * (1 + 0.97) ** 2, rel=0.15)


@pytest.mark.parametrize("snip_edges", [True, False])
def test_very_small_dither_leaves_the_fbank_unchanged(snip_edges: bool) -> None:
    samples = 0.1 * np.random.default_rng(0).standard_normal(70 * RATE).astype(np.float32)
    options = FbankOptions(snip_edges=snip_edges)
    np.testing.assert_allclose(fbank(samples, replace(options, dither=1e-9)), fbank(samples, options), atol=1e-4)


def test_sample_scale_adds_a_constant_to_the_log_fbank() -> None:
    samples = 0.1 * np.random.default_rng(0).standard_normal(RATE).astype(np.float32)
    unscaled = fbank(samples, FbankOptions(scale=1.0))
    np.testing.assert_allclose(fbank(samples) - unscaled, 2 * np.log(32768), atol=1e-3)


def test_input_without_frames_is_refused() -> None:
    for samples, options in (
        (np.zeros(0, dtype=np.float32), FbankOptions()),
        (np.zeros((2, 400), dtype=np.float32), FbankOptions()),
        (np.zeros(50, dtype=np.float32), FbankOptions(snip_edges=False)),
        (np.zeros(400, dtype=np.float32), FbankOptions(window="triangle")),
    ):
        with pytest.raises(BadInput):
            fbank(samples, options)
