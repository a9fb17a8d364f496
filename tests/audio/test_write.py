"""Writing audio: 16-bit samples and WAV files."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.sound_files import RATE
from workbench.audio.read import read, samples_to_int16, write_wav
from workbench.core.errors import BadInput


def test_int16_is_rounded_and_clipped_never_normalised() -> None:
    samples = np.array([0.0, 0.5, 1.0, -1.0, 1.5, -1.5, 0.4 / 32768, 0.6 / 32768], dtype=np.float32)
    assert samples_to_int16(samples).tolist() == [0, 16384, 32767, -32768, 32767, -32768, 0, 1]
    with pytest.raises(BadInput):
        samples_to_int16(np.array([np.nan], dtype=np.float32))


def test_int16_files_survive_a_round_trip(tmp_path: Path) -> None:
    original = np.random.default_rng(0).integers(-32768, 32768, 5000).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", original, RATE)
    write_wav(tmp_path / "b.wav", read(tmp_path / "a.wav").samples)
    np.testing.assert_array_equal(soundfile.read(tmp_path / "b.wav", dtype="int16")[0], original)


def test_no_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no samples"):
        write_wav(tmp_path / "none.wav", np.zeros(0, dtype=np.float32))
    assert not (tmp_path / "none.wav").exists()
