"""Many recordings at a glance: a table with a row for each, and files with the transcripts of all.

The table is sorted, searched and filtered in the browser; its behaviour is in assets/. A row opens its details.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from panels.transcribe.job import Row, RunState
from panels.transcribe.segment_editor import saved
from panels.widgets.templates import render
from workbench.core.errors import BadInput
from workbench.registry.sources import assets
from workbench.session.values import Transcript
from workbench.text.exports import FORMATS
from workbench.text.rates import pool_scores, score
from workbench.text.scripts import clipped

VIEW = "transcribe/many.html"
FEWEST = 3  # there is a table for this many recordings or more
TEXT_COLUMNS = 90  # width of a text in the table
ZIP, CSV = "zip", "csv"


@dataclass(frozen=True)
class Line:
    """One recording in the table; a figure that is unknown is None."""

    place: str
    recording: str
    text: str
    seconds: float | None
    rate: float | None  # over all models
    disagreement: float | None
    confidence: float | None
    done: int
    failed: int
    models: int


def recordings_of(state: RunState) -> list[list[Row]]:
    """Returns the rows of each recording, in the order of the run."""
    return [list(rows) for _, rows in groupby(state.rows, key=lambda row: row.key.partition(":")[0])]


def line_of(rows: Sequence[Row]) -> Line:
    """Returns a recording's line of the table."""
    transcripts = [row.transcript for row in rows if row.transcript]
    scores = [row.score for row in rows if row.score]
    best = min((row for row in rows if row.transcript), key=_errors, default=None)
    return Line(
        rows[0].key.partition(":")[0],
        rows[0].recording,
        clipped(best.transcript.text, TEXT_COLUMNS) if best and best.transcript else "",
        transcripts[0].audio_seconds if transcripts else None,
        pool_scores(scores).rate if scores else None,
        disagreement([each.text for each in transcripts], scores[0].normaliser if scores else "basic"),
        _mean([each for transcript in transcripts if (each := confidence(transcript)) is not None]),
        len(transcripts),
        sum(row.status == "failed" for row in rows),
        len(rows),
    )


def _errors(row: Row) -> float:
    return row.score.rate if row.score and row.score.rate is not None else 0.0


def confidence(transcript: Transcript) -> float | None:
    """Returns the mean probability of a transcript's tokens, 0 to 1; None if the model gives none."""
    tokens = [token for segment in transcript.segments for token in segment.tokens]
    return _mean([each.confidence for each in tokens if each.confidence is not None])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def disagreement(texts: Sequence[str], normaliser: str = "basic") -> float | None:
    """Returns how far texts of one recording differ: the mean error rate of one against another, over all pairs.

    Each pair counts in both directions. Returns None for fewer than two texts.
    """
    pairs = list(combinations(texts, 2))
    return sum(_disagreement(first, second, normaliser) for first, second in pairs) / len(pairs) if pairs else None


@lru_cache(maxsize=4096)
def _disagreement(first: str, second: str, normaliser: str) -> float:
    rates = [score(*pair, normaliser).rate for pair in ((first, second), (second, first))]
    return sum(1.0 if rate is None else rate for rate in rates) / 2 if first != second else 0.0


def many_html(groups: Sequence[Sequence[Row]], details: Sequence[Markup]) -> Markup:
    """Returns the table; `details` is the HTML of each recording's results, which its row opens."""
    lines = [line_of(rows) for rows in groups]
    sure = any(line.confidence is not None for line in lines)
    return render(VIEW, "many", list(zip(lines, details, strict=True)), sure)


def many_tools(**settings: Any) -> gr.HTML:
    """Returns search, filter and export above the table; hidden while there is no table. It triggers `save`."""
    script = (assets() / "many.js").read_text(encoding="utf-8")
    return gr.HTML(render(VIEW, "tools"), js_on_load=script, apply_default_css=False, **settings)


def export_all(state: RunState, form: str) -> dict[str, Any]:
    """Returns the transcripts of a run as a file for `saver`: a zip with every format, or one CSV file.

    Raises `BadInput` while there is no transcript, and for another format.
    """
    rows = [row for row in state.rows if row.transcript]
    if not rows:
        raise BadInput("there is no transcript yet; run a model first")
    if form == CSV:
        kind = FORMATS["csv"]
        content = kind.write([row.transcript for row in rows if row.transcript], [row.recording for row in rows])
        return saved("transcripts.csv", kind.media_type, content.encode(kind.encoding))
    if form == ZIP:
        return saved("transcripts.zip", "application/zip", zipped(rows))
    raise BadInput(f"there is no export of all as {form!r:.40}; expected zip or csv")


def zipped(rows: Sequence[Row]) -> bytes:
    """Returns a zip with a file of each format for each row, in a folder for each model."""
    content = io.BytesIO()
    used_names: set[str] = set()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for row in rows:
            assert row.transcript is not None
            folder = "-".join(filter(None, (row.cell.model.replace("/", "-"), row.cell.runtime, row.cell.quantization)))
            stem = _free(f"{folder}/{Path(row.recording).stem}", row.key.partition(":")[0], used_names)
            for form in FORMATS.values():
                text = form.write([row.transcript], [row.recording])
                archive.writestr(f"{stem}.{form.extension}", text.encode(form.encoding))
    return content.getvalue()


def _free(name: str, place: str, used_names: set[str]) -> str:
    """Returns the name; if another recording has the same one, with its own number, or the next that is free.

    Names that differ only in capitals count as the same, as they are on Windows and macOS.
    """
    number, found = int(place) + 1, name
    while found.casefold() in used_names:
        found, number = f"{name}-{number}", number + 1
    used_names.add(found.casefold())
    return found
