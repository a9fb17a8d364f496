"""Decides whether a recording is inside a model's domain: a small network over log-mel frames, in numpy.

The network and its limits are a file beside the models (`workbench.training.domain` writes it). It knows three kinds of
recordings: those of the domain, other speech, and sound without speech. This file knows no model and no session.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import FRAME_SHIFT, NUM_MELS, SAMPLE_RATE
from workbench.audio.fbank import fbank
from workbench.audio.spans import Span, frame_levels
from workbench.core.errors import BadInput

SOUNDS_LIKE = {"other speech": "like other speech", "no speech": "like music or noise"}
KINDS = INSIDE, SPEECH, SOUND = ("inside", "other speech", "no speech")
SILENCE = "silence"
WINDOW_SECONDS = 6.0  # the network hears so much at a time, as it was trained
MAX_WINDOWS = 30  # of a long recording, spread evenly
QUIET_DB = 30.0  # a window whose loudest part is so far below the recording's loudest is left out
SILENT_DB = -75.0  # dB of full scale: what is quieter throughout is silence
SILENT_PEAK = 10 ** (SILENT_DB / 20)
RANGE = 10.0  # log-mel values further below the largest count as this far below: the noise of a quiet room is not heard
SPREAD = 3.0  # about the standard deviation of what is left
BANDS = NUM_MELS // 2  # neighbouring mel bands are averaged

Layer = tuple[NDArray[np.float32], NDArray[np.float32], int]  # weight [out, in, width], bias [out], stride


@dataclass(frozen=True, eq=False)
class Domain:
    """The domain of a model: the recordings that it was made for.

    Attributes:
        name: what the model knows, such as "English digits".
        limits: pairs (seconds, log-odds), for a model that is unsure of its words. A recording is outside if its
            log-odds of the domain are below the limit of the last pair that it is long enough for. Longer recordings
            have higher limits.
        unknown: the limit for a model without confidences.
        sure: the limit for a model that is sure. It is low, because a sure model has probably heard what it knows.
        confidence: the mean probability of the tokens from which on a model counts as sure.
        layers: convolutions; the last one gives the values of KINDS, and a weight for the mean over time.
    """

    name: str
    limits: tuple[tuple[float, float], ...]
    unknown: float
    sure: float
    confidence: float
    layers: tuple[Layer, ...]

    def outside(
        self, samples: NDArray[np.float32], spans: Sequence[Span] | None = None, confidence: float | None = None
    ) -> str | None:
        """Returns the kind of a recording that is not of the domain, or None for one that is.

        A recording that is shorter than a frame is too short to judge: None, unless it is silent.

        Args:
            samples: [n], mono at 16 kHz.
            spans: the segments that are transcribed; without any, the whole recording is judged.
            confidence: how sure a model is of its text for the recording (see `confidence_in`).
        """
        windows = _windows(samples, spans)
        if not windows:
            is_short = len(samples) < FRAME_SHIFT
            return None if is_short and np.abs(samples).max(initial=0.0) > SILENT_PEAK else SILENCE
        inside, speech, sound = self._odds(windows)
        seconds = sum(map(len, windows)) / SAMPLE_RATE
        if inside >= self._limit(seconds, confidence):
            return None
        return SPEECH if speech >= sound else SOUND

    def _limit(self, seconds: float, confidence: float | None) -> float:
        if confidence is None:
            return self.unknown
        if confidence >= self.confidence:
            return self.sure
        return next(limit for minimum, limit in reversed(self.limits) if seconds >= minimum)

    def log_odds(self, samples: NDArray[np.float32]) -> tuple[float, float, float] | None:
        """Returns the mean log-odds of each of KINDS over the windows of a recording; None for silence."""
        windows = _windows(samples, None)
        return self._odds(windows) if windows else None

    def _odds(self, windows: Sequence[NDArray[np.float32]]) -> tuple[float, float, float]:
        values = np.mean([_log_odds(self.values(features_of(window))) for window in windows], axis=0)
        return float(values[0]), float(values[1]), float(values[2])

    def values(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the network's values of KINDS, for the features of one window."""
        hidden = features
        for number, layer in enumerate(self.layers):
            hidden = _convolved(hidden, layer)
            if number + 1 < len(self.layers):
                hidden = np.maximum(hidden, 0.0)
        weights = np.exp(hidden[:, -1] - hidden[:, -1].max())
        pooled: NDArray[np.float32] = (weights / weights.sum()) @ hidden[:, :-1]
        return pooled


def features_of(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns float32 [frames, BANDS] of a window: log-mel values whose mean in each band is 0.

    So the level of a recording, and the frequency response of its channel, make little difference.
    """
    frames = fbank(np.ascontiguousarray(samples, dtype=np.float32)).reshape(-1, BANDS, 2).mean(axis=2)
    frames = np.maximum(frames, frames.max() - RANGE)
    found: NDArray[np.float32] = ((frames - frames.mean(axis=0)) / SPREAD).astype(np.float32)
    return found


def confidence_in(text: str, probabilities: Sequence[float | None]) -> float | None:
    """Returns the confidence of a model in its text: the mean probability of its tokens, or None if there are none.

    It is 0 for an empty text, because the model has not heard what it knows.
    """
    if not text:
        return 0.0
    known = [each for each in probabilities if each is not None]
    return float(np.mean(known)) if known else None


def doubt_about(kind: str, name: str) -> str:
    """Returns the sentence about a recording of this kind, for a model whose domain has this name."""
    if kind == SILENCE:
        return "there is nothing to hear: the recording is silent"
    return f"this sounds {SOUNDS_LIKE[kind]}, and the model knows {name} only"


@lru_cache(maxsize=16)
def read_domain(path: Path) -> Domain:
    """Reads a domain from its file; raises `BadInput` for any other file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {})["domain"])
            layers = tuple(
                (
                    file.get_tensor(f"{number}.weight").astype(np.float32),
                    file.get_tensor(f"{number}.bias").astype(np.float32),
                    int(stride),
                )
                for number, stride in enumerate(metadata["strides"])
            )
            limits = tuple((float(seconds), float(limit)) for seconds, limit in metadata["limits"])
            if not limits or limits[0][0] > 0 or not layers:
                raise ValueError("it has no limit for the shortest recordings, or no layers")
            unknown, sure, confidence = (float(metadata[key]) for key in ("unknown", "sure", "confidence"))
            return Domain(str(metadata["name"]), limits, unknown, sure, confidence, layers)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise BadInput(f"{path} does not describe what a model was made for: {error!s:.200}") from error


def _windows(samples: NDArray[np.float32], spans: Sequence[Span] | None) -> list[NDArray[np.float32]]:
    """Returns the windows to judge: those that are not much quieter than the loudest, at most MAX_WINDOWS."""
    stretches = spans or [Span(0.0, len(samples) / SAMPLE_RATE)]
    cut = [window for span in stretches for window in _cut(samples[span.slice])]
    loudest = [float(frame_levels(window).max()) for window in cut]
    limit = max(max(loudest, default=0.0) - QUIET_DB, SILENT_DB)
    audible = [window for window, level in zip(cut, loudest, strict=True) if level > limit]
    if len(audible) <= MAX_WINDOWS:
        return audible
    return [audible[place] for place in np.linspace(0, len(audible) - 1, MAX_WINDOWS).astype(int)]


def _cut(samples: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Returns the samples as windows of equal length, none longer than WINDOW_SECONDS."""
    if len(samples) < FRAME_SHIFT:
        return []
    return np.array_split(samples, -(-len(samples) // int(WINDOW_SECONDS * SAMPLE_RATE)))


def _convolved(frames: NDArray[np.float32], layer: Layer) -> NDArray[np.float32]:
    """Returns [frames / stride, out] of a convolution over time with zeros around the edges."""
    weight, bias, stride = layer
    width = weight.shape[2]
    padded = np.pad(frames, ((width // 2, width // 2), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=0)[::stride]  # [frames, in, width]
    found: NDArray[np.float32] = windows.reshape(len(windows), -1) @ weight.reshape(len(weight), -1).T + bias
    return found


def _log_odds(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns log p / (1 - p) of each value's share in the softmax."""
    other_classes = [np.logaddexp.reduce(np.delete(values, place).astype(np.float64)) for place in range(len(values))]
    found: NDArray[np.float64] = values.astype(np.float64) - np.array(other_classes)
    return found
