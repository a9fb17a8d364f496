"""Voice activity detection by Silero VAD: the spans of speech in a recording.

The part of the network without memory runs on many chunks at a time, which is several times faster than one chunk after
another. `silero_spans` decides as the package `silero-vad` does. `spans_with_resets` is for speech that `silero_spans`
missed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.silero_network import CHUNK, CONTEXT, Memory, encoded
from workbench.audio.spans import Span

_BLOCK = 256  # chunks computed at a time: 8 s
_MEMORY = 125  # chunks of a window that starts with a fresh state: 4 s
_HOP = 62  # chunks from one such window to the next
_WARM_UP = 8  # first chunks of a window, for which the previous window detects better
_WINDOWS = 64  # windows in one batch
_HYSTERESIS = 0.15  # speech goes on down to this much below the threshold
_LEAST = 0.01  # probability above which speech goes on with any threshold


@dataclass(frozen=True)
class SileroOptions:
    """The options of the detector. The defaults are the package's."""

    threshold: float = 0.5  # speech begins at this probability and ends 0.15 below it
    min_speech_ms: int = 250  # shorter speech is dropped
    min_silence_ms: int = 100  # speech ends after this much silence
    pad_ms: int = 30  # added at both ends


def silero_spans(samples: np.ndarray, options: SileroOptions = SileroOptions()) -> list[Span]:
    """Returns the spans of speech in mono 16 kHz samples [n], in order, disjoint."""
    return _decided(silero_probabilities(samples), len(samples), options)


def spans_with_resets(samples: np.ndarray, options: SileroOptions = SileroOptions()) -> list[Span]:
    """Returns the spans of speech in samples [n] as `silero_spans` does, with a network that remembers at most 4 s.

    The network's memory can settle in a state that takes every sound for noise, including speech without long pauses,
    until a quiet moment comes. A network with a fresh state detects that speech.
    """
    return _decided(probabilities_with_resets(samples), len(samples), options)


def _decided(probabilities: np.ndarray, samples: int, options: SileroOptions) -> list[Span]:
    """Returns the spans with their padding; in a pause shorter than two paddings, they meet in the middle."""
    found = [
        (start, end)
        for start, end in _unpadded(probabilities, samples, options)
        if end - start > _samples(options.min_speech_ms)
    ]
    if not found:
        return []
    pad = _samples(options.pad_ms)
    starts, ends = [start for start, _ in found], [end for _, end in found]
    for number, ((_, end), (start, _)) in enumerate(pairwise(found)):
        share = (start - end) // 2 if start - end < 2 * pad else pad
        ends[number], starts[number + 1] = int(end + share), int(start - share)
    starts[0], ends[-1] = int(max(0, starts[0] - pad)), int(min(samples, ends[-1] + pad))
    return [Span(start / SAMPLE_RATE, end / SAMPLE_RATE) for start, end in zip(starts, ends, strict=True)]


def _unpadded(probabilities: np.ndarray, samples: int, options: SileroOptions) -> Iterator[tuple[int, int]]:
    """Yields the first and the end sample of each stretch of speech.

    Speech begins at the threshold. A pause begins `_HYSTERESIS` below it. The next chunk at the threshold ends the
    pause. A pause of at least `min_silence_ms` ends the speech where the pause began.
    """
    goes_on, min_silence = max(options.threshold - _HYSTERESIS, _LEAST), _samples(options.min_silence_ms)
    start: int | None = None
    pause: int | None = None  # where the present pause begins
    for place, probability in zip(range(0, CHUNK * len(probabilities), CHUNK), probabilities.tolist(), strict=True):
        if probability >= options.threshold:
            start, pause = place if start is None else start, None
        elif start is not None and probability < goes_on:
            pause = place if pause is None else pause
            if place - pause >= min_silence:
                yield start, pause
                start = pause = None
    if start is not None:
        yield start, samples


def _samples(milliseconds: int) -> float:
    return SAMPLE_RATE * milliseconds / 1000


def silero_probabilities(samples: np.ndarray) -> np.ndarray:
    """Returns the probability of speech in each 32 ms of mono 16 kHz samples [n]: float32 [ceil(n / 512)]."""
    memory = Memory()
    blocks = [memory.probabilities(features[:, None])[:, 0] for features in _features(samples)]
    return np.concatenate([np.empty(0, np.float32), *blocks])


def probabilities_with_resets(samples: np.ndarray) -> np.ndarray:
    """As `silero_probabilities`, but returns the highest probability over windows of 4 s, each with a fresh state."""
    count = -(-len(samples) // CHUNK)
    if count == 0:
        return np.empty(0, dtype=np.float32)
    starts = np.arange(-(-max(count - _MEMORY, 0) // _HOP) + 1) * _HOP
    probabilities = np.zeros(starts[-1] + _MEMORY, dtype=np.float32)
    features = np.concatenate(list(_features(samples)))
    features = np.pad(features, ((0, len(probabilities) - count), (0, 0)))
    for first in range(0, len(starts), _WINDOWS):
        group = starts[first : first + _WINDOWS]
        windows = np.stack([features[start : start + _MEMORY] for start in group], axis=1)
        for start, row in zip(group, Memory(len(group)).probabilities(windows).T, strict=True):
            skipped = _WARM_UP if start else 0
            covered = probabilities[start + skipped : start + _MEMORY]
            np.maximum(covered, row[skipped:], out=covered)
    return probabilities[:count]


def _features(samples: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the output of the part without memory for blocks of chunks [chunks, width]."""
    count = -(-len(samples) // CHUNK)
    for first in range(0, count, _BLOCK):
        yield encoded(_windows(samples, first, min(first + _BLOCK, count)))


def _windows(samples: np.ndarray, first: int, last: int) -> np.ndarray:
    """Returns chunks first ... last, each with its context in front, float32 [chunks, 576]; zeros beyond both ends."""
    start, end = first * CHUNK - CONTEXT, last * CHUNK
    part = np.pad(samples[max(start, 0) : end], (max(-start, 0), max(end - len(samples), 0)))
    windows = np.lib.stride_tricks.sliding_window_view(part.astype(np.float32, copy=False), CHUNK + CONTEXT)
    return np.array(windows[::CHUNK])
