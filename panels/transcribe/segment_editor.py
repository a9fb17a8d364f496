"""The editor of a transcript's segments, and the files made from it.

The editor's value is plain data; its behaviour in the browser is in assets/.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from panels.transcribe.job import Row
from workbench.core.errors import BadInput
from workbench.registry.sources import assets
from workbench.session.values import Transcript
from workbench.text.editing import TIME, edited, retold
from workbench.text.exports import find_format


def segment_editor(**settings: Any) -> gr.HTML:
    """Returns rows of start, end and text that can be edited and played.

    The value is `{"key": row, "rows": [[start, end, text], ...], "original": [...], "time": ...}`. "time" is the format
    of a time, which the browser uses to mark invalid cells. The timeline plays rows, and moves their borders.
    """
    script = (assets() / "segments.js").read_text(encoding="utf-8")
    return gr.HTML(
        None, html_template='<ol class="segments"></ol>', js_on_load=script, apply_default_css=False, **settings
    )


def saver(**settings: Any) -> gr.HTML:
    """Saves a file in the browser when its value becomes `{"name", "type", "base64", "at"}`; shows nothing."""
    script = (assets() / "saver.js").read_text(encoding="utf-8")
    return gr.HTML(None, html_template="", js_on_load=script, apply_default_css=False, **settings)


def saved(name: str, media_type: str, content: bytes) -> dict[str, Any]:
    """Returns the value of a `saver` that saves a file with that content."""
    return {
        "name": name,
        "type": media_type,
        "base64": base64.b64encode(content).decode("ascii"),
        "at": time.time(),  # makes a new value even for the same file
    }


def editor_value(row: Row, rows: Sequence[Sequence[Any]] | None = None) -> dict[str, Any]:
    """Returns the editor's value for a finished row; `rows` are its segments after earlier edits."""
    transcript = transcript_of(row)
    original = [[f"{part.start:.2f}", f"{part.end:.2f}", part.text] for part in transcript.segments]
    return {
        "key": row.key,
        "rows": [list(each) for each in rows] if rows is not None else original,
        "original": original,
        "time": TIME,
    }


def transcript_of(row: Row | None) -> Transcript:
    """Returns the row's transcript; raises `BadInput` if there is none."""
    if row is None or row.transcript is None:
        raise BadInput("that row has no transcript; pick one that is finished")
    return row.transcript


def rows_of(value: Any, key: str) -> list[list[Any]] | None:
    """Returns the rows of an editor's value if it shows that row, else None. A browser may send any value."""
    if not isinstance(value, dict) or value.get("key") != key or not isinstance(value.get("rows"), list):
        return None
    return [list(each) for each in value["rows"] if isinstance(each, (list, tuple))]


def is_edited(value: Any) -> bool:
    """Returns whether the editor has changes that are not saved elsewhere."""
    return isinstance(value, dict) and value.get("rows") != value.get("original")


def export(row: Row, value: Any, form: str) -> dict[str, Any]:
    """Returns the row's transcript with the editor's changes as a file for `saver`.

    Raises `BadInput` for invalid times if the file has times.
    """
    rows = rows_of(value, row.key)
    transcript = transcript_of(row)
    chosen = find_format(form)
    if rows is not None:
        transcript = (edited if chosen.timed else retold)(transcript, rows)
    content = chosen.write([transcript], [row.recording]).encode(chosen.encoding)
    made_by = "-".join(filter(None, (row.cell.model.replace("/", "-"), row.cell.quantization)))
    return saved(f"{Path(row.recording).stem}.{made_by}.{chosen.extension}", chosen.media_type, content)
