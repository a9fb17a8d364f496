"""Voice activity by Silero VAD, with the network that the `silero-vad` package carries.

The package runs its network once per 32 ms. Here the part without memory runs on many stretches at a time and the
recurrent part over the whole sequence: the same arithmetic, several times faster. Runs on one thread, and one recording
after another where several threads ask; needs no network, torchaudio or onnxruntime. Loads torch, so the page's own
process does not call this.

`silero_spans` decides as the package does. `fresh_spans` is for what that left out.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.spans import Span
from workbench.core.errors import Unavailable

CHUNK = 512  # samples per probability: 32 ms
CHUNK_SECONDS = CHUNK / SAMPLE_RATE
_CONTEXT = 64  # samples of the chunk before that the network also sees
_BLOCK = 1024  # chunks computed at a time: 33 s
_MEMORY = 125  # chunks of a window that begins with a fresh state: 4 s
_HOP = 62  # chunks from one such window to the next
_WARM_UP = 8  # first chunks of a window, on which the window before it has the better ear
_WINDOWS = 64  # computed side by side

_one_at_a_time = threading.Lock()  # how many threads torch computes on is the whole process's, and so is the package


@dataclass(frozen=True)
class SileroOptions:
    """Defaults as the package has them."""

    threshold: float = 0.5  # probability from which speech begins; it ends 0.15 lower
    min_speech_ms: int = 250  # what is shorter is dropped
    min_silence_ms: int = 100  # how long speech must be away to end
    pad_ms: int = 30  # added at both ends


def silero_spans(
    samples: np.ndarray, options: SileroOptions = SileroOptions(), on_progress: Callable[[float], None] | None = None
) -> list[Span]:
    """The spans of speech in mono 16 kHz samples [n], in order, disjoint; `on_progress` gets the fraction done."""
    return _decided(silero_probabilities(samples, on_progress), len(samples), options)


def fresh_spans(samples: np.ndarray, options: SileroOptions = SileroOptions()) -> list[Span]:
    """As `silero_spans`, by a network that remembers 4 s at most.

    The memory of the network can settle in a state in which it takes whatever goes on for noise, speech without long
    pauses included, until it is quiet for a while. A network that starts afresh hears that speech.
    """
    return _decided(fresh_probabilities(samples), len(samples), options)


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


def silero_probabilities(samples: np.ndarray, on_progress: Callable[[float], None] | None = None) -> np.ndarray:
    """The probability of speech in each 32 ms of mono 16 kHz samples [n]: float32 [ceil(n / 512)]."""
    count = -(-len(samples) // CHUNK)
    probabilities = np.empty(count, dtype=np.float32)
    state = None
    with _alone() as (network, recurrent):
        for first in range(0, count, _BLOCK):
            last = min(first + _BLOCK, count)
            hidden, state = recurrent(_encoded(network, samples, first, last)[None], state)
            probabilities[first:last] = network.decoder.decoder(hidden[0, :, :, None]).reshape(-1).numpy()
            if on_progress is not None:
                on_progress(last / count)
    return probabilities


def fresh_probabilities(samples: np.ndarray) -> np.ndarray:
    """As `silero_probabilities`, each the highest that windows of 4 s with a fresh state give."""
    import torch

    count = -(-len(samples) // CHUNK)
    if count == 0:
        return np.empty(0, dtype=np.float32)
    starts = np.arange(-(-max(count - _MEMORY, 0) // _HOP) + 1) * _HOP
    probabilities = np.zeros(starts[-1] + _MEMORY, dtype=np.float32)
    with _alone() as (network, recurrent):
        blocks = [_encoded(network, samples, first, min(first + _BLOCK, count)) for first in range(0, count, _BLOCK)]
        encoded = torch.cat([*blocks, blocks[0].new_zeros(len(probabilities) - count, blocks[0].shape[1])])
        for first in range(0, len(starts), _WINDOWS):
            some = starts[first : first + _WINDOWS]
            hidden, _ = recurrent(torch.stack([encoded[start : start + _MEMORY] for start in some]))
            found = network.decoder.decoder(hidden.reshape(-1, hidden.shape[-1], 1)).reshape(len(some), -1).numpy()
            for start, row in zip(some, found, strict=True):
                skipped = _WARM_UP if start else 0
                heard = probabilities[start + skipped : start + _MEMORY]
                np.maximum(heard, row[skipped:], out=heard)
    return probabilities[:count]


@contextmanager
def _alone() -> Iterator[tuple[Any, Any]]:
    """The package's network and its recurrent part over sequences, for one caller at a time, on one thread."""
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
    """What the part without memory makes of chunks first ... last: a tensor [chunks, width]."""
    import torch

    chunks = torch.from_numpy(_windows(samples, first, last))
    return network.encoder(network.run_extractors(chunks)).squeeze(-1)


def _windows(samples: np.ndarray, first: int, last: int) -> np.ndarray:
    """Chunks first ... last with their context in front, float32 [chunks, 576]; zeros beyond both ends."""
    start, end = first * CHUNK - _CONTEXT, last * CHUNK
    part = np.pad(samples[max(start, 0) : end], (max(-start, 0), max(end - len(samples), 0)))
    windows = np.lib.stride_tricks.sliding_window_view(part.astype(np.float32, copy=False), CHUNK + _CONTEXT)
    return np.array(windows[::CHUNK])


@lru_cache(maxsize=1)
def _package() -> tuple[Any, Any]:
    """The package and its network for 16 kHz."""
    import torch

    threads = torch.get_num_threads()
    try:
        import silero_vad
    except ImportError as error:
        raise Unavailable("voice activity detection needs the silero-vad package: pip install silero-vad") from error
    finally:
        torch.set_num_threads(threads)  # importing the package sets it to one for everybody
    network = getattr(silero_vad.load_silero_vad(), "_model", None)
    if not hasattr(network, "run_extractors") or not hasattr(network, "encoder") or not hasattr(network, "decoder"):
        raise Unavailable(
            f"silero-vad {silero_vad.__version__} carries a network of another layout; version 6 is expected"
        )
    return silero_vad, network
