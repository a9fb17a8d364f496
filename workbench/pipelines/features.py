"""Computes the input of a family's network: runs the front end with the user's options and records its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.audio.frontend import Frontend, FrontendConfig
from workbench.core.options import ListeningOptions
from workbench.system.processors import available_processors
from workbench.trace.recorder import Recorder
from workbench.trace.times import RowTimes

STAGES = ("fbank", "lfr", "features")


class Features:
    """A model's front end.

    Args:
        stages: the stages to record; their names in a trace begin with `frontend.`.
    """

    def __init__(self, config: FrontendConfig, cmvn: Cmvn | None, stages: Sequence[str] = STAGES):
        self.frontend = Frontend(config, cmvn)
        self._without_cmvn = Frontend(config, None)
        self._stages = stages

    def __call__(self, samples: np.ndarray, options: ListeningOptions, recorder: Recorder | None = None) -> np.ndarray:
        """Returns features [T, width] of samples [n], with CMVN and dither as the options say."""
        frontend = self._frontend_for(options)
        energies = self._record("fbank", frontend.energies(samples, options.dither), recorder)
        stacked = self._record("lfr", frontend.stack(energies), recorder)
        return self._record("features", frontend.normalise(stacked), recorder)

    def batch(
        self, chunks: Sequence[np.ndarray], options: ListeningOptions, recorder: Recorder | None = None
    ) -> list[np.ndarray]:
        """Returns the features [T, width] of each chunk of samples [n]. Threads compute several chunks at a time.

        A recorder gets the stages of the first chunk.
        """
        if recorder is not None or len(chunks) < 2:
            return [self(samples, options, None if number else recorder) for number, samples in enumerate(chunks)]
        with ThreadPoolExecutor(min(len(chunks), available_processors()), thread_name_prefix="features") as pool:
            return list(pool.map(lambda samples: self(samples, options), chunks))

    def gradient(self, gradient: np.ndarray, samples: int, options: ListeningOptions) -> np.ndarray:
        """Returns the gradient with respect to the filter bank [frames, mels], from that of the features [T, width].

        Args:
            samples: the length of the recording.
        """
        return self._frontend_for(options).gradient(gradient, samples)

    def _frontend_for(self, options: ListeningOptions) -> Frontend:
        return self._without_cmvn if options.cmvn == "off" else self.frontend

    def _record(self, stage: str, computed: np.ndarray, recorder: Recorder | None) -> np.ndarray:
        """Records a stage and returns the values to continue with: those of the trace if it replaces the stage, else
        `computed`.
        """
        if recorder is None or stage not in self._stages:
            return computed
        recorded = recorder.put(f"frontend.{stage}", computed)
        return computed if recorded is computed else np.array(recorded, dtype=computed.dtype)


def front_end_times(config: FrontendConfig) -> Mapping[str, RowTimes]:
    """Returns the times of the rows of the front end's stages (see `workbench.trace.times`)."""
    return {
        "frontend.fbank": RowTimes(0.0, config.frame_shift / 1000),
        "gradients.fbank.*": RowTimes(0.0, config.frame_shift / 1000),
        "frontend.*": RowTimes(0.0, config.frame_seconds),
    }
