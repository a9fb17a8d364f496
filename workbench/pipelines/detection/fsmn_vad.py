"""FSMN-VAD around its network: finds speech in recordings of any length, in blocks of half a minute.

`workbench.families.voice_activity.fsmn_vad` decides where speech begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from workbench.audio.constants import FRAME_LENGTH, FRAME_SHIFT
from workbench.audio.fbank import num_frames
from workbench.audio.frontend import Frontend
from workbench.audio.spans import Span
from workbench.core.errors import BadInput
from workbench.core.finite import not_finite_error
from workbench.core.resources import close
from workbench.families.voice_activity.fsmn_vad import DetectorConfig, FsmnVadOptions, find_spans, frame_decibels

_DEFAULTS = FsmnVadOptions()
_BLOCK_FRAMES = 3000  # frames per block: half a minute


class FsmnNetwork(Protocol):
    """The network that each runtime implements: it computes the probability of every class in each frame."""

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        ...

    @property
    def classes(self) -> int:
        """The number of classes."""
        ...

    def start(self) -> Any:
        """Returns the memory before the first frame."""
        ...

    def score(self, features: np.ndarray, past: Any) -> tuple[np.ndarray, Any]:
        """Returns probabilities [T, classes] of features [T, width], and the memory for the next call.

        Args:
            past: the memory from `start` or from the previous call, so that blocks give the same result as one long
                call.
        """
        ...


class FsmnVad:
    """A loaded FSMN-VAD. Recordings are mono 16 kHz samples [n] with full scale 1.

    Raises `BadInput` if the configuration names silence classes that the network does not have.
    """

    def __init__(self, network: FsmnNetwork, frontend: Frontend, detector: DetectorConfig):
        if max(detector.sil_pdf_ids) >= network.classes:
            raise BadInput(
                f"model_conf.sil_pdf_ids is {list(detector.sil_pdf_ids)}; the network has {network.classes} classes"
            )
        self.network = network
        self.frontend = frontend
        self.detector = detector

    def spans(
        self,
        samples: np.ndarray,
        on_progress: Callable[[float], None] | None = None,
        options: FsmnVadOptions = _DEFAULTS,
    ) -> list[Span]:
        """Returns the spans of speech in samples [n] at 16 kHz, in order and disjoint.

        `on_progress` receives the fraction that is done.
        """
        if len(samples) < FRAME_LENGTH:  # shorter than one window: the original scores nothing
            return []
        silent = list(self.detector.sil_pdf_ids)
        silence, levels = [], []
        for first, last, scores in self._blocks(samples, on_progress):
            silence.append(scores[:, silent].sum(axis=1))
            levels.append(frame_decibels(samples[first * FRAME_SHIFT : (last - 1) * FRAME_SHIFT + FRAME_LENGTH]))
        frame_values = np.concatenate(silence), np.concatenate(levels)
        return find_spans(*frame_values, len(samples), self.detector, options, self.frontend.config.lfr_m)

    def scores(self, samples: np.ndarray, on_progress: Callable[[float], None] | None = None) -> np.ndarray:
        """Returns the probability of every class in each 10 ms [frames, classes], in float32 or the network's wider
        type.
        """
        none = np.empty((0, self.network.classes), dtype=np.float32)
        return np.concatenate([none, *(scores for _, _, scores in self._blocks(samples, on_progress))])

    def close(self) -> None:
        """Frees the network."""
        close(self.network)

    def _blocks(
        self, samples: np.ndarray, on_progress: Callable[[float], None] | None
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yields (first frame, end frame, scores [frames, classes]) of each block; the end frame is exclusive.

        Raises `NotFinite` for scores that are NaN.
        """
        count = num_frames(len(samples), self.frontend.config.fbank_options())
        past = self.network.start()
        for first in range(0, count, _BLOCK_FRAMES):
            last = min(first + _BLOCK_FRAMES, count)
            scores, past = self.network.score(self._features(samples, first, last, count), past)
            if np.isnan(scores).any():
                raise not_finite_error("scores are NaN")
            yield first, last, scores
            if on_progress is not None:
                on_progress(last / count)

    def _features(self, samples: np.ndarray, first: int, last: int, count: int) -> np.ndarray:
        """Returns features [frames, width] of frames `first` to `last`, computed from only the samples that they and
        their context need.
        """
        context = self.frontend.config.lfr_m
        low, high = max(0, first - context), min(count, last + context)
        part = samples[low * FRAME_SHIFT : (high - 1) * FRAME_SHIFT + FRAME_LENGTH]
        return self.frontend(part).features[first - low : last - low]
