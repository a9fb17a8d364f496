"""Reads the weights of linear layers of a checkpoint in a separate process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from workbench.artifacts.process import run_child
from workbench.compare.guesses.guess import Linear
from workbench.core.errors import Cancelled, WorkbenchError
from workbench.core.progress import report


@dataclass(frozen=True)
class CheckpointLayers:
    """The linear layers of a checkpoint. It can be pickled."""

    directory: Path
    family: str

    def __call__(self, stages: Sequence[str]) -> Mapping[str, Linear]:
        """Returns the linear layer behind each stage, if it is known.

        Only hints need them, so a checkpoint that cannot be read has none.
        """
        with TemporaryDirectory() as folder:
            path = Path(folder) / "layers.npz"
            arguments = {
                "directory": str(self.directory.resolve()),
                "family": self.family,
                "layers": list(stages),
                "out": str(path),
            }
            try:
                run_child(arguments, self.directory.name, lambda _, activity: report(1.0, f"{activity}, for a hint"))
            except Cancelled:
                raise
            except WorkbenchError:
                return {}
            with np.load(path) as arrays:
                weights = {name: arrays[name] for name in arrays.files}
        return {
            stage: Linear(weights[f"{stage}.weight"], weights.get(f"{stage}.bias"))
            for stage in stages
            if f"{stage}.weight" in weights
        }
