"""Waveform and filter bank of a recording of any length, at any zoom: computed once in blocks, delivered in tiles.

One pass over the recording keeps the least and the greatest sample of every 10 ms, and one frame of the filter bank of
every 0.32 s. Coarser levels are reduced from those; finer ones are computed from the samples of the tile that is asked
for. A level halves or doubles the time of a column: level L has columns of 10 ms times 2^L.
"""

from __future__ import annotations

import threading

import numpy as np

from workbench.audio.constants import FRAME_LENGTH, FRAMES_PER_SECOND, NUM_MELS, SAMPLE_RATE
from workbench.audio.fbank import FbankOptions, fbank
from workbench.audio.track import Track

FINEST = -3  # level of the waveform's finest tiles, 1.25 ms a column; below that, samples are drawn
COARSEST = 20
PEAK_COLUMNS = 1024  # of a tile of the waveform
MEL_COLUMNS = 256  # of a tile of the filter bank
MEL_KEPT = 6  # level of the filter bank that the pass keeps
MEL_LOW, MEL_HIGH = 0.0, 32.0  # log energies that become 0 and 255
_BLOCK = 2048  # columns of 10 ms that the pass reads at a time; a multiple of 2 ** MEL_KEPT
_FRAMES_OF_COLUMN = 2  # most frames of the filter bank that are averaged for a column
_EDGE = 0.01  # seconds on both sides of a window, for the resampler
_WINDOW = FRAME_LENGTH / SAMPLE_RATE  # seconds
_SIDE_BY_SIDE = FbankOptions(frame_shift_ms=FbankOptions().frame_length_ms)  # windows that do not overlap


class Overview:
    """The waveform and the filter bank of a recording.

    `run` makes the pass, and may run in a thread of its own. Meanwhile the tiles have what is done, and silence after.
    """

    def __init__(self, track: Track):
        self.track = track
        self.frames = track.frames  # the true number once the pass is over
        self.done = 0  # columns of 10 ms
        self.finished = False
        self.peak = 0  # greatest absolute sample so far
        columns = -(-track.frames * FRAMES_PER_SECOND // track.rate)
        self._peaks = np.zeros((columns, 2), dtype=np.int16)
        self._mels = np.zeros((-(-columns >> MEL_KEPT), NUM_MELS), dtype=np.uint8)

    @property
    def seconds(self) -> float:
        return self.frames / self.track.rate

    @property
    def share(self) -> float:
        """The fraction of the pass that is done, 0 to 1."""
        return 1.0 if self.finished else self.done / max(len(self._peaks), 1)

    @property
    def contrast(self) -> tuple[int, int]:
        """The two values of the filter bank's tiles, 0 to 255, for the ends of a colour scale."""
        known = self._mels[: max(self.done >> MEL_KEPT, 1)]
        audible = known[known.max(axis=1) > 0]  # without digital silence
        if not len(audible):
            return 0, 255
        sample = audible[:: max(len(audible) // 2000, 1)]
        low, high = float(np.percentile(sample, 5.0)), float(np.percentile(sample, 99.8))
        return int(low), int(max(high, low + 16))

    def run(self, stop: threading.Event) -> None:
        """Makes the pass; needs the memory of one block. Ends early once `stop` is set."""
        for begin in range(0, len(self._peaks), _BLOCK):
            if stop.is_set():
                return
            end = min(begin + _BLOCK, len(self._peaks))
            first = self._edge(begin, 0)
            samples = self.track.read(first, self._edge(end, 0) - first)
            if len(samples):
                self._peaks[begin:end] = self._reduced(samples, begin, end, 0)
                self.peak = max(self.peak, int(np.abs(self._peaks[begin:end].astype(np.int32)).max()))
                columns = range(begin >> MEL_KEPT, -(-end >> MEL_KEPT))
                times = (np.array(columns) + 0.5) * 2**MEL_KEPT / FRAMES_PER_SECOND
                self._mels[columns.start : columns.stop] = _codes(self._frames_at(samples, first, times))
            self.done = end
            if first + len(samples) < min(self._edge(end, 0), self.frames):  # there is less than the file states
                self.frames = first + len(samples)
                break
        self.finished = True

    def peaks(self, level: int, tile: int) -> np.ndarray:
        """Returns least and greatest sample, int16 [columns, 2], of a tile of the waveform; fewer columns at the
        end.
        """
        begin, end = tile * PEAK_COLUMNS, (tile + 1) * PEAK_COLUMNS
        if level >= 0:
            return _shrunk(self._peaks[begin << level : end << level], level)
        end = min(end, -(-self.frames * (FRAMES_PER_SECOND << -level) // self.track.rate))
        first = self._edge(begin, level)
        samples = self.track.read(first, self._edge(end, level) - first)
        if begin >= end or not len(samples):
            return np.empty((0, 2), dtype=np.int16)
        return self._reduced(samples, begin, end, level)

    def mels(self, level: int, tile: int) -> np.ndarray:
        """Returns the filter bank, uint8 [columns, 80], of a tile: `MEL_LOW` is 0 and `MEL_HIGH` is 255."""
        begin, end = tile * MEL_COLUMNS, (tile + 1) * MEL_COLUMNS
        if level >= MEL_KEPT:
            shift = level - MEL_KEPT
            mels = self._mels[begin << shift : end << shift]
            starts = np.arange(0, len(mels), 1 << shift)
            if not len(starts):
                return np.empty((0, NUM_MELS), dtype=np.uint8)
            counts = np.diff(np.append(starts, len(mels)))[:, None]
            return (np.add.reduceat(mels, starts, axis=0, dtype=np.uint32) // counts).astype(np.uint8)
        column = 2**level / FRAMES_PER_SECOND  # seconds
        end = min(end, int(np.ceil(self.seconds / column)))
        if begin >= end:
            return np.empty((0, NUM_MELS), dtype=np.uint8)
        rate, each = self.track.rate, min(2**level, _FRAMES_OF_COLUMN)
        first = max(int((begin * column - _WINDOW - _EDGE) * rate), 0)
        samples = self.track.read(first, int((end * column + _WINDOW + _EDGE) * rate) - first)
        if not len(samples):
            return np.empty((0, NUM_MELS), dtype=np.uint8)
        times = (np.arange(begin * each, end * each) + 0.5) * column / each
        frames = self._frames_at(samples, first, times)
        return _codes(frames.reshape(-1, each, NUM_MELS).mean(axis=1))

    def _edge(self, column: int, level: int) -> int:
        """Returns the sample at which a column begins."""
        if level < 0:
            return min(column * self.track.rate // (FRAMES_PER_SECOND << -level), self.frames)
        return min((column << level) * self.track.rate // FRAMES_PER_SECOND, self.frames)

    def _reduced(self, samples: np.ndarray, begin: int, end: int, level: int) -> np.ndarray:
        """Returns least and greatest sample of the columns; `samples` begin with the first column, and may be cut."""
        length, remainder = divmod(self.track.rate, FRAMES_PER_SECOND << max(-level, 0))
        found: np.ndarray = np.zeros((end - begin, 2), dtype=np.int16)
        groups = len(samples) // length if length and not remainder else 0
        if groups:
            table = samples[: groups * length].reshape(groups, length)
            found[:groups] = np.stack([table.min(axis=1), table.max(axis=1)], axis=1)
        starts = np.array([self._edge(column, level) for column in range(begin + groups, end)], dtype=np.int64)
        starts -= self._edge(begin, level)
        starts = starts[starts < len(samples)]
        if len(starts):
            found[groups : groups + len(starts), 0] = np.minimum.reduceat(samples, starts)
            found[groups : groups + len(starts), 1] = np.maximum.reduceat(samples, starts)
        return found

    def _frames_at(self, samples: np.ndarray, first: int, times: np.ndarray) -> np.ndarray:
        """Returns one frame of the filter bank, float32 [frames, 80], around each time in seconds.

        Args:
            samples: the recording's samples from `first` on; everything outside counts as silence.
        """
        rate = self.track.rate
        padding = 0 if rate == SAMPLE_RATE else round(_EDGE * rate)
        length = round(_WINDOW * rate) + 2 * padding
        starts = np.round(times * rate).astype(np.int64) - length // 2 - first
        places = starts[:, None] + np.arange(length)
        inside = (places >= 0) & (places < len(samples))
        windows = np.where(inside, samples[np.clip(places, 0, len(samples) - 1)], 0).astype(np.float32) / 32768
        if rate != SAMPLE_RATE:
            import soxr

            windows = soxr.resample(windows.T, rate, SAMPLE_RATE, quality="HQ").T
            before = max((windows.shape[1] - FRAME_LENGTH) // 2, 0)
            windows = windows[:, before : before + FRAME_LENGTH]
        return fbank(np.ascontiguousarray(windows).ravel(), _SIDE_BY_SIDE)


def _shrunk(peaks: np.ndarray, level: int) -> np.ndarray:
    """Returns the least of the least and the greatest of the greatest of every 2^level columns."""
    if not level or not len(peaks):
        return peaks
    starts = np.arange(0, len(peaks), 1 << level)
    return np.stack([np.minimum.reduceat(peaks[:, 0], starts), np.maximum.reduceat(peaks[:, 1], starts)], axis=1)


def _codes(frames: np.ndarray) -> np.ndarray:
    scaled = (frames - MEL_LOW) * (255 / (MEL_HIGH - MEL_LOW))
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
