"""Whisper's features in numpy equal those of transformers."""

from __future__ import annotations

import numpy as np
import pytest
import transformers

from tests.support.sound_files import wavering_noise
from workbench.audio.whisper_mel import WhisperMel, mel_bank


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(("count", "bins"), [(201, 80), (4960, 128), (16_001, 40), (480_000, 80)])
def test_whisper_mel_equals_transformers_features(count: int, bins: int, normalise: bool) -> None:
    extractor = transformers.WhisperFeatureExtractor(feature_size=bins)
    samples = wavering_noise(count)
    options = {"padding": "longest", "truncation": False, "do_normalize": normalise, "return_tensors": "np"}
    expected = extractor(samples, sampling_rate=16000, **options)["input_features"][0].T
    features = WhisperMel(bins, 160, 400, normalise)(samples)
    assert features.dtype == np.float32 and features.shape == (count // 160, bins) == expected.shape
    np.testing.assert_allclose(features, expected, atol=2e-5)


def test_whisper_mel_equals_transformers_with_another_hop_and_fft_size() -> None:
    extractor = transformers.WhisperFeatureExtractor(feature_size=20, hop_length=100, n_fft=512)
    samples = wavering_noise(5000)
    expected = extractor(samples, sampling_rate=16000, padding="longest", truncation=False, return_tensors="np")
    np.testing.assert_allclose(WhisperMel(20, 100, 512, False)(samples), expected["input_features"][0].T, atol=2e-5)


def test_mel_filters_equal_those_of_transformers() -> None:
    expected = transformers.WhisperFeatureExtractor(feature_size=80).mel_filters
    np.testing.assert_allclose(mel_bank(80, 400), expected, atol=1e-9)
