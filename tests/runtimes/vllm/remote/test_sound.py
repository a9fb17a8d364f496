"""Samples written as WAV files and read back without loss by another library."""

from __future__ import annotations

import io

import numpy as np
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.audio.read import read
from workbench.runtimes.vllm.remote.sound import wav


def read_back(content: bytes) -> np.ndarray:
    samples, rate = soundfile.read(io.BytesIO(content), dtype="float32")
    assert rate == 16000 and samples.ndim == 1
    return samples


@given(arrays(np.float32, st.integers(0, 50), elements=st.floats(-4, 4, width=32)))
def test_float_samples_are_read_back_exactly(samples: np.ndarray) -> None:
    np.testing.assert_array_equal(read_back(wav(samples)), samples)


@given(arrays(np.int16, st.integers(1, 50)))
def test_16_bit_samples_are_written_as_16_bit_wav(values: np.ndarray) -> None:
    samples = values.astype(np.float32) / 32768
    content = wav(samples)
    np.testing.assert_array_equal(read_back(content), samples)
    assert len(content) == 44 + 2 * len(values)


def test_samples_beyond_the_16_bit_range_are_not_clipped() -> None:
    samples = np.array([1.0, -1.0, 32768 / 32768 + 1], dtype=np.float32)
    np.testing.assert_array_equal(read_back(wav(samples)), samples)


def test_wav_is_read_back_exactly_by_the_workbench(tmp_path) -> None:
    samples = np.linspace(-0.5, 0.5, 16000, dtype=np.float32)
    (tmp_path / "a.wav").write_bytes(wav(samples))
    np.testing.assert_array_equal(read(tmp_path / "a.wav").samples, samples)
