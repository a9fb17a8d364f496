"""Voice activity detection by Silero VAD, with the network from the `silero-vad` package.

The package runs its network once per 32 ms. Here the part without memory runs on many chunks at a time and the
recurrent part on the whole sequence: the same arithmetic, several times faster. It runs on one thread, and recordings
from several threads wait for each other. It needs no internet, torchaudio or onnxruntime. It loads torch, so the page's
own process does not call it.

`silero_spans` decides as the package does. `spans_with_resets` is for speech that `silero_spans` missed.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.spans import Span
from workbench.core.errors import Unavailable

CHUNK = 512  # samples per probability: 32 ms
_CONTEXT = 64  # samples of the previous chunk that the network also sees
_BLOCK = 1024  # chunks computed at a time: 33 s
_MEMORY = 125  # chunks of a window that starts with a fresh state: 4 s
_HOP = 62  # chunks from one such window to the next
_WARM_UP = 8  # first chunks of a window, for which the previous window detects better
_WINDOWS = 64  # windows in one batch

_one_at_a_time = threading.Lock()  # torch's thread count and the package belong to the whole process


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
    package, _ = _package()
    found = package.get_speech_timestamps_from_probs(
        probabilities.tolist(),
        sampling_rate=SAMPLE_RATE,
        threshold=options.threshold,
        min_speech_duration_ms=options.min_speech_ms,
        min_silence_duration_ms=options.min_silence_ms,
        speech_pad_ms=options.pad_ms,
        audio_length_samples=samples,
    )
    return [Span(each["start"] / SAMPLE_RATE, each["end"] / SAMPLE_RATE) for each in found]


def silero_probabilities(samples: np.ndarray) -> np.ndarray:
    """Returns the probability of speech in each 32 ms of mono 16 kHz samples [n]: float32 [ceil(n / 512)]."""
    count = -(-len(samples) // CHUNK)
    probabilities = np.empty(count, dtype=np.float32)
    state = None
    with _exclusive_network() as (network, recurrent):
        for first in range(0, count, _BLOCK):
            last = min(first + _BLOCK, count)
            hidden, state = recurrent(_encoded(network, samples, first, last)[None], state)
            probabilities[first:last] = network.decoder.decoder(hidden[0, :, :, None]).reshape(-1).numpy()
    return probabilities


def probabilities_with_resets(samples: np.ndarray) -> np.ndarray:
    """As `silero_probabilities`, but returns the highest probability over windows of 4 s, each with a fresh state."""
    import torch

    count = -(-len(samples) // CHUNK)
    if count == 0:
        return np.empty(0, dtype=np.float32)
    starts = np.arange(-(-max(count - _MEMORY, 0) // _HOP) + 1) * _HOP
    probabilities = np.zeros(starts[-1] + _MEMORY, dtype=np.float32)
    with _exclusive_network() as (network, recurrent):
        blocks = [_encoded(network, samples, first, min(first + _BLOCK, count)) for first in range(0, count, _BLOCK)]
        encoded = torch.cat([*blocks, blocks[0].new_zeros(len(probabilities) - count, blocks[0].shape[1])])
        for first in range(0, len(starts), _WINDOWS):
            group = starts[first : first + _WINDOWS]
            hidden, _ = recurrent(torch.stack([encoded[start : start + _MEMORY] for start in group]))
            found = network.decoder.decoder(hidden.reshape(-1, hidden.shape[-1], 1)).reshape(len(group), -1).numpy()
            for start, row in zip(group, found, strict=True):
                skipped = _WARM_UP if start else 0
                covered = probabilities[start + skipped : start + _MEMORY]
                np.maximum(covered, row[skipped:], out=covered)
    return probabilities[:count]


@contextmanager
def _exclusive_network() -> Iterator[tuple[Any, Any]]:
    """Yields the package's network and its recurrent part over sequences, to one caller at a time, on one thread."""
    import torch

    with _one_at_a_time:
        _, network = _package()
        cell = network.decoder.rnn
        recurrent = torch.nn.LSTM(cell.weight_ih.shape[1], cell.weight_hh.shape[1], batch_first=True)
        recurrent.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                yield network, recurrent
        finally:
            torch.set_num_threads(threads)


def _encoded(network: Any, samples: np.ndarray, first: int, last: int) -> Any:
    """Returns the output of the part without memory for chunks first ... last: a tensor [chunks, width]."""
    import torch

    chunks = torch.from_numpy(_windows(samples, first, last))
    return network.encoder(network.run_extractors(chunks)).squeeze(-1)


def _windows(samples: np.ndarray, first: int, last: int) -> np.ndarray:
    """Returns chunks first ... last, each with its context in front, float32 [chunks, 576]; zeros beyond both ends."""
    start, end = first * CHUNK - _CONTEXT, last * CHUNK
    part = np.pad(samples[max(start, 0) : end], (max(-start, 0), max(end - len(samples), 0)))
    windows = np.lib.stride_tricks.sliding_window_view(part.astype(np.float32, copy=False), CHUNK + _CONTEXT)
    return np.array(windows[::CHUNK])


@lru_cache(maxsize=1)
def _package() -> tuple[Any, Any]:
    """Returns the package and its network for 16 kHz."""
    import torch

    threads = torch.get_num_threads()
    try:
        import silero_vad
    except ImportError as error:
        raise Unavailable("voice activity detection needs the silero-vad package: pip install silero-vad") from error
    finally:
        torch.set_num_threads(threads)  # the import sets it to one for the whole process
    network = getattr(silero_vad.load_silero_vad(), "_model", None)
    if not hasattr(network, "run_extractors") or not hasattr(network, "encoder") or not hasattr(network, "decoder"):
        raise Unavailable(
            f"silero-vad {silero_vad.__version__} carries a network of another layout; version 6 is expected"
        )
    return silero_vad, network
