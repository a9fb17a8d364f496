"""What enters a family's network: the front end as the options ask for it, its stages recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.audio.frontend import Frontend, FrontendConfig
from workbench.core.options import ListeningOptions
from workbench.trace.recorder import Recorder

STAGES = ("fbank", "lfr", "features")


class Features:
    """A model's front end.

    Args:
        stages: those that a recorder gets, `frontend.` before their names.
    """

    def __init__(self, config: FrontendConfig, cmvn: Cmvn | None, stages: Sequence[str] = STAGES):
        self.frontend = Frontend(config, cmvn)
        self._without_cmvn = Frontend(config, None)
        self._stages = stages

    def __call__(self, samples: np.ndarray, options: ListeningOptions, recorder: Recorder | None = None) -> np.ndarray:
        """Features [T, width] of samples [n], with CMVN and dither as the options say."""
        frontend = self._without_cmvn if options.cmvn == "off" else self.frontend
        energies = self._on("fbank", frontend.energies(samples, options.dither), recorder)
        stacked = self._on("lfr", frontend.stack(energies), recorder)
        return self._on("features", frontend.normalise(stacked), recorder)

    def _on(self, stage: str, own: np.ndarray, recorder: Recorder | None) -> np.ndarray:
        """What to go on with after a stage."""
        if recorder is None or stage not in self._stages:
            return own
        found = recorder.put(f"frontend.{stage}", own)
        return own if found is own else np.array(found, dtype=own.dtype)
