"""Human speech for the comparisons, and the measures that two arrays are compared by."""

from __future__ import annotations

import numpy as np

from tests.support.shared_data import shared
from workbench.audio.read import read
from workbench.registry.sources import assets

RATE = 16000
RECORDINGS = (
    "BAC009S0764W0121.wav",
    "IT0011W0001.wav",
    "TEST_MEETING_T0000000001_S00000.wav",
    "TEST_NET_Y0000000000_-KTKHdZ2fb8_S00000.wav",
    "funasr_sample.wav",
    "librivox_austen_0880.wav",
    "librivox_austen_0890.wav",
)


def recording(name: str) -> np.ndarray:
    """A recording of the shared development data, float32 [n] at 16 kHz; skips the test where it is missing."""
    return read(shared(f"speech/{name}")).samples


def speech(seconds: float) -> np.ndarray:
    """Returns the given seconds of the project's sample recordings in a row, repeated as needed."""
    paths = sorted((assets() / "samples").glob("*.wav"))
    return np.resize(np.concatenate([read(path).samples for path in paths]), round(seconds * RATE))


def cosines(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Returns the cosine of two arrays [frames, width], and the least cosine of a frame, both in float64."""
    assert a.shape == b.shape
    a, b = a.astype(np.float64), b.astype(np.float64)
    rows = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)), float(rows.min())
