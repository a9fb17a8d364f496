"""Compares the GGUF files that candidates have read with the checkpoint of the run, each file once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbench.compare.weights.report import WeightReport
from workbench.core.errors import BadInput
from workbench.core.sides import GGUF_SUFFIX, Side
from workbench.parity_lab.found import result_or_reason
from workbench.registry.cards import Card
from workbench.registry.sources import local_checkpoint

WeightsOrReason = tuple[WeightReport | None, str]
"""A report, or why there is none; both empty if no file is named."""


class WeightChecks:
    """Compares files with the checkpoint of a card.

    Only files that a user names are compared: those that this project converts from the checkpoint are right.

    Args:
        precision: of trace files; the path of a GGUF file names the file that the other program has read.
        say: reports the current activity, and may raise to stop the run.
        several: the run is one of several inputs. `workbench.parity_lab.several` compares the files once then.
    """

    def __init__(self, card: Card, precision: str, say: Callable[[str], None], several: bool = False):
        self._card, self._precision, self._say = card, precision, say
        self._several = several
        self._reports: dict[Path, WeightsOrReason] = {}

    def of(self, side: Side) -> WeightsOrReason:
        """Returns the report on the file of a candidate."""
        file = side.file
        if side.path is not None and self._precision.lower().endswith(GGUF_SUFFIX):
            file = Path(self._precision)
        if file is None or self._several:
            return None, ""
        if file not in self._reports:
            self._reports[file] = result_or_reason(lambda: self._compared(file))
        return self._reports[file]

    def _compared(self, file: Path) -> WeightReport:
        from workbench.artifacts.checks import checked

        directory = None if self._card.kind == "gguf" else local_checkpoint(self._card)
        if directory is None:
            raise BadInput(f"{self._card.id} is a GGUF file or not on this machine; expected a checkpoint's directory")
        return checked(directory, self._card.family, file, lambda _, activity: self._say(activity))
