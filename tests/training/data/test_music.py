import numpy as np
import pytest

from workbench.audio.constants import SAMPLE_RATE
from workbench.training.data.music import chords, drums, melody, music, tones


@pytest.mark.parametrize("make", [music, tones])
def test_generated_music_has_the_requested_length_and_level(make):
    for seed in range(12):
        samples = make(np.random.default_rng(seed), 1.5)
        assert samples.dtype == np.float32 and len(samples) == 1.5 * SAMPLE_RATE
        assert 0.3 < np.abs(samples).max() <= 1.001
        assert np.array_equal(samples, make(np.random.default_rng(seed), 1.5))


def test_chord_frequencies_belong_to_the_scale():
    """The strongest frequencies of chords in C on equal temperament lie within 3 Hz of a note of the scale."""
    scale, key = (0, 4, 7), 48.0  # C major's triad from 131 Hz on
    samples = chords(np.random.default_rng(3), 4 * SAMPLE_RATE, 1.0, key, scale)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    peak = np.argmax(spectrum) * SAMPLE_RATE / len(samples)
    notes = [440 * 2 ** ((key + 12 * octave + step - 69) / 12) for octave in range(6) for step in scale]
    partials = [note * harmonic for note in notes for harmonic in (1, 3, 5)]
    assert min(abs(peak - partial) for partial in partials) < 3.0


@pytest.mark.parametrize("part", [chords, melody, drums])
def test_music_part_fills_the_requested_length(part):
    samples = part(np.random.default_rng(0), SAMPLE_RATE, 0.5, 50.0, (0, 2, 4, 5, 7, 9, 11))
    assert len(samples) == SAMPLE_RATE and np.isfinite(samples).all()
