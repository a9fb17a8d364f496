"""Compares a GGUF file with the checkpoint that it should be made of, in a separate process."""

from __future__ import annotations

from pathlib import Path

from workbench.artifacts.process import run_child
from workbench.compare.weights.report import WeightReport
from workbench.core.progress import OnProgress


def checked(directory: Path, family: str, file: Path, on_progress: OnProgress | None = None) -> WeightReport:
    """Returns what differs between a GGUF file and a checkpoint directory by more than rounding.

    Raises `BadInput` for a file or directory that cannot be used, `Unavailable` if a package is missing.
    """
    arguments = {"directory": str(directory.resolve()), "family": family, "checked": str(file.absolute())}
    found = run_child(arguments, directory.name, on_progress)
    return WeightReport.from_dict(found["report"])
