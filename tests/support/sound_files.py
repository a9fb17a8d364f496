"""Small sound files, and such whose headers are wrong about their length."""

from __future__ import annotations

import io
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch

RATE = 16_000
needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs the ffmpeg program")


def tone(seconds: float, rate: int = RATE, hertz: float = 440.0, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def white_noise(seconds: float, seed: int = 0) -> tuple[np.ndarray, int]:
    """Samples, and their rate."""
    return np.random.default_rng(seed).normal(0, 0.1, round(seconds * RATE)).astype(np.float32), RATE


def wavering_noise(count: int, seed: int | None = None) -> np.ndarray:
    """Samples of noise with a slow loudness curve and an offset; without a seed, their number is the seed."""
    loudness = 0.05 * (1.1 + np.sin(np.arange(count) / 5000))
    noise = np.random.default_rng(count if seed is None else seed).normal(0, 1, count)
    return (noise * loudness + 0.01).astype(np.float32)


class Decoder:
    """A decoder of torchcodec, as newer versions of datasets have it in their rows; has [channels, n], or an error."""

    def __init__(self, decoded: np.ndarray | RuntimeError, rate: int = RATE):
        self.decoded = decoded
        self.rate = rate

    def get_all_samples(self) -> SimpleNamespace:
        if isinstance(self.decoded, RuntimeError):
            raise self.decoded
        return SimpleNamespace(data=torch.from_numpy(self.decoded), sample_rate=self.rate)

    def __getstate__(self) -> object:
        raise TypeError("no decoder can be pickled")


def wav_bytes(samples: np.ndarray, rate: int = RATE, subtype: str = "PCM_16") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, subtype=subtype, format="WAV")
    return file.getvalue()


def int16_samples(wav: bytes) -> np.ndarray:
    """The samples of a canonical 16-bit WAV file, read without libsndfile."""
    return np.frombuffer(wav[44:], dtype="<i2").astype(np.float32) / 32768


def with_data_size(wav: bytes, size: int, riff: int | None = None) -> bytes:
    """The same WAV file with another size in its data chunk (and, if given, in its RIFF header)."""
    changed = bytearray(wav)
    at = wav.index(b"data") + 4
    changed[at : at + 4] = struct.pack("<I", size)
    if riff is not None:
        changed[4:8] = struct.pack("<I", riff)
    return bytes(changed)


def without_length(flac: Path) -> Path:
    """The same FLAC file as a program writes it to a pipe: the number of samples in its header is 0."""
    content = bytearray(flac.read_bytes())
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    flac.write_bytes(content)
    return flac
