"""What the inputs for recordings do on every tab that has them: samples, uploaded files, the microphone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from panels.widgets.markup import element, text
from panels.widgets.samples import Sample, reference_text
from workbench.audio.check import check_sound
from workbench.core.errors import WorkbenchError

SEVERAL = "Speakers, sources and licences: assets/samples/README.md"


def sample_values(found: Sequence[Sample]) -> tuple[list[str], str, str, str]:
    """Returns the samples' paths, the reference text, the credit, and the samples' text."""
    credit = found[0].credit if len(found) == 1 else SEVERAL
    reference = reference_text(found)
    return [str(sample.path) for sample in found], reference, element("p", text(credit), "muted small"), reference


def unreadable_html(recordings: str | Sequence[str] | None) -> str:
    """Returns why the first unreadable file of these is not a recording; empty if all can be read."""
    return first_fault_html(check_sound, [recordings] if isinstance(recordings, str) else recordings)


def first_fault_html(check: Callable[[Path], None], files: Sequence[str] | None) -> str:
    """Returns what is wrong with the first file that `check` refuses; empty if it refuses none."""
    for path in files or ():
        try:
            check(Path(path))
        except WorkbenchError as error:
            return fault_html(error)
    return ""


def fault_html(error: WorkbenchError) -> str:
    """Returns what is wrong with a file, as it stands below the input."""
    return element("p", text(str(error)), "fault small", role="status")


class RecordingActions:
    """The event handlers of the inputs for recordings; a tab's own class inherits them."""

    def forget_sample(self, reference: str, sample_text: str) -> tuple[Any, str, str]:
        """Removes a sample's text and credit when other recordings are chosen; text of the user stays."""
        return "" if sample_text and reference == sample_text else gr.skip(), "", ""

    def add_recording(self, recorded: str | None, files: list[str] | None) -> tuple[list[str], None]:
        """Appends the microphone's recording to the recordings."""
        return [*(files or []), *([recorded] if recorded else [])], None
