"""Whisper's log-mel features of a recording, as transformers computes them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from workbench.audio.constants import SAMPLE_RATE


class WhisperMel:
    """Computes the features.

    Args:
        bins: mel bands.
        hop: samples between frames.
        window: samples of a frame.
        normalise: bring the samples to mean 0 and variance 1 first.
    """

    def __init__(self, bins: int, hop: int, window: int, normalise: bool):
        self.bins, self.hop, self.window, self.normalise = bins, hop, window, normalise

    @cached_property
    def _extractor(self) -> Any:
        from transformers import WhisperFeatureExtractor

        return WhisperFeatureExtractor(
            feature_size=self.bins, sampling_rate=SAMPLE_RATE, hop_length=self.hop, n_fft=self.window
        )

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """Returns log-mel features, float32 [frames, bins], of samples [n] at 16 kHz."""
        found: np.ndarray = self._extractor(
            np.ascontiguousarray(samples, dtype=np.float32),
            sampling_rate=SAMPLE_RATE,
            padding="longest",
            truncation=False,
            do_normalize=self.normalise,
            return_tensors="np",
        )["input_features"][0]
        return np.ascontiguousarray(found.T)
