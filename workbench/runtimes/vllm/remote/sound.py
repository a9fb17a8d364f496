"""Writes samples as a WAV file in memory, without loss."""

from __future__ import annotations

import struct

import numpy as np

from workbench.audio.constants import SAMPLE_RATE

PCM, FLOAT = 1, 3  # WAVE_FORMAT_PCM, WAVE_FORMAT_IEEE_FLOAT
FULL_SCALE = 32768  # of 16-bit samples


def wav(samples: np.ndarray) -> bytes:
    """Returns mono float32 samples [n] at 16 kHz as a WAV file: 16 bits if they hold the values exactly, else 32."""
    scaled = samples * np.float32(FULL_SCALE)  # a power of two: exact
    rounded = np.rint(scaled)
    exact = bool(np.array_equal(rounded, scaled)) and bool(((rounded >= -FULL_SCALE) & (rounded < FULL_SCALE)).all())
    data = (rounded.astype("<i2") if exact else samples.astype("<f4")).tobytes()
    width, kind = (2, PCM) if exact else (4, FLOAT)
    form = struct.pack("<HHIIHH", kind, 1, SAMPLE_RATE, SAMPLE_RATE * width, width, 8 * width)
    if kind == FLOAT:  # WAV requires an extension (here empty) and the number of samples for all kinds but PCM
        form += struct.pack("<H", 0)
    fact = struct.pack("<4sII", b"fact", 4, len(samples)) if kind == FLOAT else b""
    body = b"WAVE" + struct.pack("<4sI", b"fmt ", len(form)) + form + fact
    body += struct.pack("<4sI", b"data", len(data)) + data
    return struct.pack("<4sI", b"RIFF", len(body)) + body
