"""Peak memory of a session over a long recording: `python -m benchmarks.session_memory --minutes 30 120`.

The recording is cut from a sample at random places, with pauses, so its segments have many lengths. It prints the peak
of the session's process for each length, with float32 and bfloat16 products: as the workbench starts sessions, and as
oneDNN and PyTorch would do by default.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import soundfile

import workbench
from workbench.registry.sources import assets

RATE = 16000
DEFAULTS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024", "LRU_CACHE_CAPACITY": "1024"}


def write_recording(path: Path, minutes: float) -> None:
    """Writes speech of 3 to 12 s between pauses of 0.5 to 2 s."""
    sample, _ = soundfile.read(assets() / "samples" / "long_digits.wav", dtype="float32")
    draw = np.random.default_rng(0)
    parts, left = list[np.ndarray](), round(minutes * 60 * RATE)
    while left > 0:
        length = int(draw.integers(3 * RATE, 12 * RATE))
        first = int(draw.integers(0, len(sample) - length))
        pause = 1e-4 * draw.standard_normal(int(draw.integers(RATE // 2, 2 * RATE)))
        parts += [sample[first : first + length], pause.astype(np.float32)]
        left -= length + len(pause)
    soundfile.write(path, np.concatenate(parts), RATE, subtype="PCM_16")


def peak_megabytes(path: Path, dtype: str, environment: dict[str, str]) -> float:
    """Returns the peak of a new session's process after the recording."""
    os.environ.update(environment)
    try:
        registry = workbench.Registry()
        with registry, registry.open("demo/sensevoice", runtime="pytorch", dtype=dtype) as session:
            memory_bytes = session.transcribe(path).memory_bytes
    finally:
        for name in environment:
            del os.environ[name]
    return (memory_bytes or 0) / 1e6


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, nargs="+", default=[30.0, 120.0])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for minutes in options.minutes:
            path = Path(folder) / f"{minutes:g}.wav"
            write_recording(path, minutes)
            samples = 4 * soundfile.info(path).frames / 1e6
            for dtype in ("float32", "bfloat16"):
                here, default = (peak_megabytes(path, dtype, each) for each in ({}, DEFAULTS))
                print(
                    f"{minutes:g} min, {dtype}: {here:.0f} MB, {default:.0f} MB by default; samples {samples:.0f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
