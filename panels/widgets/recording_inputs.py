"""The inputs for recordings, the same on every tab that has them: samples, a box for files, the microphone.

This file wires no events; `panels.widgets.recording_actions` has the event handlers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import gradio as gr
from markupsafe import Markup

from panels.widgets.html_block import html_block
from panels.widgets.samples import Sample
from panels.widgets.tab_parts import folded
from panels.widgets.templates import render


class RecordingInputs(NamedTuple):
    """The components, from top to bottom."""

    samples: gr.HTML  # triggers `pick` with the name of a sample
    files: gr.File
    credit: gr.HTML  # the author and licence of the picked sample
    microphone: gr.Audio


def recording_inputs(
    samples: Sequence[Sample], label: str, height: float, tab: str = "", several: bool = False
) -> RecordingInputs:
    """Creates the inputs at the current position of the page.

    Args:
        label: the label of the box for files.
        height: the height of the box, in rem.
        tab: the name that the ids of the components begin with; empty for ids without one.
        several: whether the box takes several files, and all samples at once.
    """
    before = f"{tab}-" if tab else ""
    css = "boxed" if tab else None
    chips = html_block(samples_html(samples, several), "pick", elem_id=f"{before}samples")
    files = gr.File(
        file_count="multiple" if several else "single",
        label=label,
        allow_reordering=several,
        height=f"{height}rem",
        elem_id=f"{before}recording{'s' if several else ''}",
        elem_classes=css,
    )
    credit = html_block("", elem_id=f"{before}credit", elem_classes="credit" if tab else None)
    with folded("Record with the microphone"):
        microphone = gr.Audio(
            sources=["microphone"],
            type="filepath",
            label="Microphone",
            editable=False,
            elem_id=f"{before}microphone",
            elem_classes=css,
        )
    return RecordingInputs(chips, files, credit, microphone)


def samples_html(samples: Sequence[Sample], several: bool = True) -> Markup | str:
    """Returns the samples as buttons with text, speaker and length; with `several`, also one for all."""
    if not samples:
        return ""
    with_file_names = [(sample, Path(sample.path).name) for sample in samples]
    return render("widgets/parts.html", "samples", with_file_names, several)
