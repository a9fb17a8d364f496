"""Voice activity by Silero VAD, with the network that the `silero-vad` package carries.

The package runs its network once per 32 ms. Here the part without memory runs on many stretches at a time and the
recurrent part over the whole sequence: the same arithmetic, several times faster. Runs on one thread, and one recording
after another where several threads ask; needs no network, torchaudio or onnxruntime. Loads torch, so the page's own
process does not call this.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.spans import Span
from workbench.errors import Unavailable

CHUNK = 512  # samples per probability: 32 ms
CHUNK_SECONDS = CHUNK / SAMPLE_RATE
_CONTEXT = 64  # samples of the chunk before that the network also sees
_BLOCK = 1024  # chunks computed at a time: 33 s

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
    probabilities = silero_probabilities(samples, on_progress)
    package, _ = _package()
    found = package.get_speech_timestamps_from_probs(
        probabilities.tolist(),
        sampling_rate=SAMPLE_RATE,
        threshold=options.threshold,
        min_speech_duration_ms=options.min_speech_ms,
        min_silence_duration_ms=options.min_silence_ms,
        speech_pad_ms=options.pad_ms,
        audio_length_samples=len(samples),
    )
    return [Span(each["start"] / SAMPLE_RATE, each["end"] / SAMPLE_RATE) for each in found]


def silero_probabilities(samples: np.ndarray, on_progress: Callable[[float], None] | None = None) -> np.ndarray:
    """The probability of speech in each 32 ms of mono 16 kHz samples [n]: float32 [ceil(n / 512)]."""
    with _one_at_a_time:
        return _probabilities(samples, on_progress)


def _probabilities(samples: np.ndarray, on_progress: Callable[[float], None] | None) -> np.ndarray:
    import torch

    _, network = _package()
    cell = network.decoder.rnn
    recurrent = torch.nn.LSTM(cell.weight_ih.shape[1], cell.weight_hh.shape[1], batch_first=True)
    recurrent.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    count = -(-len(samples) // CHUNK)
    probabilities = np.empty(count, dtype=np.float32)
    state = None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            for first in range(0, count, _BLOCK):
                last = min(first + _BLOCK, count)
                chunks = torch.from_numpy(_windows(samples, first, last))
                hidden, state = recurrent(network.encoder(network.run_extractors(chunks)).squeeze(-1)[None], state)
                probabilities[first:last] = network.decoder.decoder(hidden[0, :, :, None]).reshape(-1).numpy()
                if on_progress is not None:
                    on_progress(last / count)
    finally:
        torch.set_num_threads(threads)
    return probabilities


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
