"""Audio tracks with random access, and the tiles of their waveform and spectrogram, against plain definitions."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.audio import overview as overview_module
from workbench.audio import track as track_module
from workbench.audio.fbank import fbank
from workbench.audio.overview import MEL_COLUMNS, MEL_HIGH, MEL_LOW, PEAK_COLUMNS, Overview
from workbench.audio.read import read
from workbench.audio.track import open_track
from workbench.core.errors import BadInput


class ArrayTrack:
    """A track of samples in memory."""

    notes = ()

    def __init__(self, samples: np.ndarray, rate: int, promised: int | None = None):
        self.samples, self.rate, self.frames = samples, rate, promised or len(samples)
        self.longest = 0

    def read(self, first: int, count: int) -> np.ndarray:
        self.longest = max(self.longest, count)
        return self.samples[max(first, 0) : max(first + count, 0)]

    def close(self) -> None:
        pass


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9000, 9000, count, dtype=np.int16)


def run_overview(track: ArrayTrack) -> Overview:
    overview = Overview(track)
    overview.run(threading.Event())
    return overview


def slow_peaks(samples: np.ndarray, rate: int, level: int) -> np.ndarray:
    """Returns each column's least and greatest sample; a 10 ms column starts at the sample at or before its time."""
    finer = 2 ** max(-level, 0)
    edges = [n * rate // (100 * finer) for n in range(len(samples) * 100 * finer // rate + 2)]
    columns = [samples[a:b] for a, b in pairwise(edges)]
    fine = [(int(c.min()), int(c.max())) if len(c) else (0, 0) for c in columns if len(c)]
    step = 2 ** max(level, 0)
    groups = [fine[n : n + step] for n in range(0, len(fine), step)]
    return np.array([(min(g)[0], max(each[1] for each in g)) for g in groups], dtype=np.int16).reshape(-1, 2)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from((8000, 11025, 16000, 22050, 44100)), st.integers(1, 150_000), st.sampled_from((-3, -1, 0, 1, 4, 12))
)
def test_waveform_tiles_hold_minimum_and_maximum_of_each_column(rate: int, count: int, level: int) -> None:
    samples = noise(count, count)
    overview = run_overview(ArrayTrack(samples, rate))
    expected = slow_peaks(samples, rate, level)
    tiles = [overview.peaks(level, tile) for tile in range(len(expected) // PEAK_COLUMNS + 1)]
    np.testing.assert_array_equal(np.concatenate(tiles), expected)
    assert overview.peak == np.abs(samples.astype(int)).max() and overview.share == 1.0


def test_spectrogram_tiles_match_the_fbank_of_the_recognisers() -> None:
    samples = noise(16000)
    overview = run_overview(ArrayTrack(samples, 16000))
    codes = overview.mels(0, 0)
    assert codes.shape == (100, 80) and codes.dtype == np.uint8
    # A column's middle is 5 ms after its start, a frame's 12.5 ms: frame n of samples moved by 7.5 ms is column n.
    frames = fbank(np.concatenate([np.zeros(120, dtype=np.float32), samples / np.float32(32768)]))
    displayed = MEL_LOW + codes[1:98] * (MEL_HIGH - MEL_LOW) / 255
    assert np.abs(displayed - frames[1:98]).max() <= 0.5 * (MEL_HIGH - MEL_LOW) / 255 + 1e-3
    assert overview.mels(0, 1).shape == (0, 80) and overview.mels(9, 0).shape == (1, 80)


@pytest.mark.parametrize("rate", [8000, 48000])
def test_spectrogram_shows_a_tone_in_the_same_band_at_other_sample_rates(rate: int) -> None:
    moments = np.arange(3 * rate) / rate
    tone = (8000 * np.sin(2 * np.pi * 1000 * moments)).astype(np.int16)
    overview = run_overview(ArrayTrack(tone, rate))
    same = run_overview(
        ArrayTrack((8000 * np.sin(2 * np.pi * 1000 * np.arange(48000) / 16000)).astype(np.int16), 16000)
    )
    for level in (0, 4, 6, 7):
        assert overview.mels(level, 0)[2 >> level :].mean(axis=0).argmax() == same.mels(level, 0).mean(axis=0).argmax()


def test_overview_reads_in_blocks_and_corrects_an_overstated_length() -> None:
    samples = noise(16000 * 60)
    track = ArrayTrack(samples, 16000, promised=16000 * 90)
    overview = Overview(track)
    assert overview.share == 0 and not overview.peaks(0, 0).any(), "silence until it is known"
    overview.run(threading.Event())
    assert overview.seconds == 60 and overview.finished, "there was less than the file states"
    assert track.longest == 16000 * overview_module._BLOCK // 100
    stopped = threading.Event()
    stopped.set()
    other = Overview(track)
    other.run(stopped)
    assert not other.finished
    assert len(overview.mels(3, 0)) == MEL_COLUMNS


@pytest.mark.parametrize(
    ("name", "subtype", "channels", "most_off"),
    [
        ("a.wav", "PCM_16", 1, 0),
        ("a.flac", "PCM_16", 2, 1),
        ("a.wav", "FLOAT", 1, 1),
        ("a.ogg", "VORBIS", 1, 1),
        ("a.mp3", None, 1, 1),
    ],
)
def test_track_reads_samples_at_any_position(
    tmp_path: Path, name: str, subtype: str | None, channels: int, most_off: int
) -> None:
    rate = 16000
    mono = 0.3 * np.sin(2 * np.pi * 300 * np.arange(3 * rate) / rate)
    soundfile.write(tmp_path / name, np.stack([mono] * channels, axis=1), rate, subtype=subtype)
    expected = np.rint(read(tmp_path / name).samples * 32768).astype(int)
    track = open_track(tmp_path / name)
    assert (track.rate, track.frames) == (rate, len(expected))
    for first, count in ((20000, 500), (0, 300), (300, 400), (len(expected) - 10, 100)):
        samples = track.read(first, count)
        assert samples.dtype == np.int16 and len(samples) == min(count, len(expected) - first)
        assert np.abs(samples - expected[first : first + count]).max() <= most_off
    assert len(track.read(len(expected), 10)) == len(track.read(-5, 10)) == 0
    track.close()
    assert len(track.read(0, 10)) == 0


def test_file_unsupported_by_libsndfile_is_decoded_once_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, length = noise(20000), 20000
    blocks = samples.astype(np.float32).reshape(-1, 1) / 32768
    closed: list[bool] = []
    monkeypatch.setattr(track_module, "opened", lambda path: (None, []))
    monkeypatch.setattr(
        track_module, "blocks_of", lambda path: (iter([blocks, blocks]), 8000, lambda: closed.append(1))
    )
    track = open_track(tmp_path / "a.m4a")
    assert (track.rate, track.frames, closed) == (8000, 2 * length, [True])
    np.testing.assert_array_equal(track.read(length - 5, 10), np.concatenate([samples[-5:], samples[:5]]))
    track.close()
    monkeypatch.setattr(track_module, "MAX_DECODED", 2 * 25000)
    track = open_track(tmp_path / "a.m4a")
    assert track.frames == 25000 and "are shown" in track.notes[0]
    track.close()


def test_file_without_sound_raises_an_error_with_the_file_name(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound here")
    with pytest.raises(BadInput, match=r"text\.wav is not a sound file"):
        open_track(tmp_path / "text.wav")
    with pytest.raises(BadInput, match=r"there is no file gone\.wav"):
        open_track(tmp_path / "gone.wav")


def test_damaged_track_is_readable_at_any_position_before_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "cut.flac"
    soundfile.write(path, 0.3 * np.random.default_rng(0).standard_normal(160_000), 16_000)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    readable = len(read(path).samples)
    for first in (readable + 4000, 40_000):  # beyond the damage, and across it
        track = open_track(path)
        assert len(track.read(first, 100_000)) == max(readable - first, 0)
        assert (len(track.read(0, 160_000)), len(track.read(100, 50)), len(track.read(readable, 50))) == (
            readable,
            50,
            0,
        )
        track.close()
