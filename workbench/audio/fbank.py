"""The log-mel filter bank of Kaldi, computed by kaldi-native-fbank over whole recordings.

Each frame: mean removed, pre-emphasised, windowed, power spectrum of the next power of two, triangular mel bands, log.
This file does not stack or normalise, and it does not read files.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.audio.constants import (
    FRAME_LENGTH_MS,
    FRAME_SHIFT_MS,
    INT16_SCALE,
    MEL_LOW_HZ,
    NUM_MELS,
    PREEMPHASIS,
    SAMPLE_RATE,
)
from workbench.core.errors import BadInput
from workbench.system.processors import available_processors

WINDOWS = ("hamming", "hanning", "povey", "rectangular", "blackman")

_BLOCK_FRAMES = 6000  # frames computed at a time: one minute
_PART_FRAMES = 1500  # frames that one thread computes: 15 seconds


@dataclass(frozen=True)
class FbankOptions:
    """The options of a filter bank. The defaults are those that speech recognisers use."""

    sample_rate: int = SAMPLE_RATE  # Hz
    scale: float = INT16_SCALE  # samples are multiplied by it first: Kaldi defines its features on int16 samples

    frame_length_ms: float = FRAME_LENGTH_MS
    frame_shift_ms: float = FRAME_SHIFT_MS
    snip_edges: bool = True  # only frames that lie wholly inside the audio; else one per shift, with mirrored edges

    dither: float = 0.0  # standard deviation of the noise added to each frame, on the scaled samples
    remove_dc: bool = True
    preemphasis: float = PREEMPHASIS
    window: str = "hamming"

    num_mels: int = NUM_MELS
    low_hz: float = MEL_LOW_HZ
    high_hz: float = 0.0  # zero or less: counted down from half the sample rate

    @property
    def frame_length(self) -> int:
        """The number of samples under one window."""
        return int(self.sample_rate * self.frame_length_ms / 1000)

    @property
    def frame_shift(self) -> int:
        """The number of samples from one window's start to the next."""
        return int(self.sample_rate * self.frame_shift_ms / 1000)


def num_frames(samples: int, options: FbankOptions = FbankOptions()) -> int:
    """Returns the number of frames for `samples` samples; one if there are some, but fewer than a window needs."""
    if samples == 0:
        return 0
    if not options.snip_edges:
        return (samples + options.frame_shift // 2) // options.frame_shift
    return 1 + max(0, samples - options.frame_length) // options.frame_shift


def fbank(samples: np.ndarray, options: FbankOptions = FbankOptions(), seed: int = 0) -> np.ndarray:
    """Returns log-mel energies, float32 [frames, mels], of mono samples [n] with full scale 1.

    A recording shorter than one window gives one frame, with a window as long as the recording, as in FunASR's front
    end. Bands are floored at the float32 epsilon, so digital silence is -15.9424. Dither is Kaldi's: new Gaussian noise
    for every frame, here drawn from `seed`, so that a run can be repeated. Raises `BadInput` for samples that are not a
    vector or give no frame.
    """
    if samples.ndim != 1:
        raise BadInput(f"the filter bank expects mono samples of shape (n,), not {samples.shape}")
    if options.window not in WINDOWS:
        raise BadInput(f"the filter bank has no window {options.window!r}; expected one of {', '.join(WINDOWS)}")
    count = num_frames(len(samples), options)
    if count == 0:
        raise BadInput(f"{len(samples)} samples are too few for a frame of the filter bank")
    if len(samples) == 1:  # without its mean one sample is silence; so are two equal ones, and those have a spectrum
        samples = np.repeat(samples, 2)
    length = min(options.frame_length, len(samples)) if options.snip_edges else options.frame_length
    features = np.empty((count, options.num_mels), dtype=np.float32)
    if options.dither:
        _fill(features, _dithered_frames(samples, count, length, options, seed), length, length, True, options)
    elif options.snip_edges:
        _fill_parts(features, samples, length, options)
    else:
        size = _BLOCK_FRAMES * options.frame_shift
        blocks = (_scaled(samples[at : at + size], options) for at in range(0, len(samples), size))
        _fill(features, blocks, length, options.frame_shift, False, options)
    return features


def _scaled(samples: np.ndarray, options: FbankOptions) -> np.ndarray:
    scaled: np.ndarray = np.multiply(samples, options.scale, dtype=np.float32)
    return scaled


def _fill_parts(features: np.ndarray, samples: np.ndarray, length: int, options: FbankOptions) -> None:
    """Writes the frames that lie wholly inside the samples. The parts of a long recording are computed side by side."""
    shift = options.frame_shift

    def fill(first: int) -> None:
        part = features[first : first + _PART_FRAMES]
        part_samples = samples[first * shift : (first + len(part) - 1) * shift + length]
        _fill(part, iter([_scaled(part_samples, options)]), length, shift, True, options)

    parts = range(0, len(features), _PART_FRAMES)
    if len(parts) == 1:
        fill(0)
        return
    with ThreadPoolExecutor(min(len(parts), available_processors()), thread_name_prefix="fbank") as pool:
        list(pool.map(fill, parts))


def _fill(
    features: np.ndarray, blocks: Iterator[np.ndarray], length: int, shift: int, snip_edges: bool, options: FbankOptions
) -> None:
    """Runs blocks of scaled samples through the library and writes the frames into `features`."""
    computer = _computer(length, shift, snip_edges, options)
    filled = 0

    def take() -> None:
        nonlocal filled
        ready = computer.num_frames_ready
        for index in range(filled, ready):
            features[index] = computer.get_frame(index)
        computer.pop(ready - filled)  # otherwise the library holds every frame until the end
        filled = ready

    for block in blocks:
        computer.accept_waveform(options.sample_rate, block)
        take()
    computer.input_finished()
    take()
    if filled != len(features):
        raise AssertionError(f"the filter bank gave {filled} frames, {len(features)} were expected")


def _computer(length: int, shift: int, snip_edges: bool, options: FbankOptions) -> Any:
    import kaldi_native_fbank

    native = kaldi_native_fbank.FbankOptions()
    frame, mel = native.frame_opts, native.mel_opts
    frame.samp_freq = options.sample_rate
    # The library truncates milliseconds to samples in float32; half a sample more gives the right count.
    frame.frame_length_ms = (length + 0.5) * 1000 / options.sample_rate
    frame.frame_shift_ms = (shift + 0.5) * 1000 / options.sample_rate
    frame.snip_edges = snip_edges
    frame.dither = 0.0
    frame.remove_dc_offset = options.remove_dc
    frame.preemph_coeff = options.preemphasis
    frame.window_type = options.window
    mel.num_bins = options.num_mels
    mel.low_freq = options.low_hz
    mel.high_freq = options.high_hz
    native.energy_floor = 0.0
    return kaldi_native_fbank.OnlineFbank(native)


def _dithered_frames(
    samples: np.ndarray, count: int, length: int, options: FbankOptions, seed: int
) -> Iterator[np.ndarray]:
    """Yields the frames one after another without overlap, each with its own noise.

    The library's dither has no seed. If the frames are laid end to end and analysed with a shift of one frame length,
    the features are the same as for overlapping frames, and each frame can have its own noise.
    """
    generator = np.random.default_rng(seed)
    last = len(samples) - 1
    first = 0 if options.snip_edges else (options.frame_shift - length) // 2
    for start in range(0, count, _BLOCK_FRAMES):
        starts = first + options.frame_shift * np.arange(start, min(count, start + _BLOCK_FRAMES))
        indices = starts[:, np.newaxis] + np.arange(length)
        while not options.snip_edges and (indices.min() < 0 or indices.max() > last):  # mirrored at both ends
            indices = np.where(indices < 0, -indices - 1, indices)
            indices = np.where(indices > last, 2 * last + 1 - indices, indices)
        noise = generator.standard_normal(indices.shape, dtype=np.float32)
        yield (_scaled(samples[indices], options) + np.float32(options.dither) * noise).ravel()
