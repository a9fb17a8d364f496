"""A codec that several conversations share."""

from __future__ import annotations

import threading

import numpy as np

from workbench.speech.network import Codec
from workbench.trace.recorder import Recorder


class SharedCodec(Codec):
    """A codec for several threads, which decodes for one of them at a time."""

    def __init__(self, codec: Codec):
        self._codec = codec
        self._lock = threading.Lock()
        self.sample_rate, self.hop = codec.sample_rate, codec.hop

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """See `Codec.encode`."""
        with self._lock:
            return self._codec.encode(samples)

    def decode(self, codes: np.ndarray, recorder: Recorder | None = None) -> np.ndarray:
        """See `Codec.decode`."""
        with self._lock:
            return self._codec.decode(codes, recorder)

    @property
    def receptive_field(self) -> tuple[int, int]:
        """See `Codec.receptive_field`."""
        return self._codec.receptive_field
