"""The whole report as one HTML file: no network, no other file; the policy in its head forbids both.

The element `figures` holds the overview as JSON, for programs. All rows are in the
elements `rows-head`, `rows-numbers` and `rows-texts` (see `packed`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from pathlib import Path

import numpy as np

from workbench import __version__
from workbench.audio.read import read as read_sound
from workbench.core.phrases import counted
from workbench.display.html import Html, element, joined
from workbench.display.words import duration
from workbench.evaluation.places import Recordings
from workbench.evaluation.report import sections
from workbench.evaluation.report.columns import Columns, read_columns
from workbench.evaluation.report.confusions import confusions
from workbench.evaluation.report.extremes import most_different, worst
from workbench.evaluation.report.overview import Overview, overview
from workbench.evaluation.report.packed import packed
from workbench.evaluation.report.players import SoundOf, players
from workbench.evaluation.rows import Utterance
from workbench.evaluation.store import Evaluation, read
from workbench.registry.sources import assets
from workbench.system.atomic_files import write_whole

REPORT = "report.html"
PLACE = "evaluation"  # of style sheet and script, in the assets
WORST = "Those with the highest rates, over all models together."
DIFFERENT = "Those on which the rates of two models are farthest apart."


def page(columns: Columns, sound_of: SoundOf, figures: Overview | None = None) -> str:
    """Returns the report.

    Args:
        sound_of: returns the sound of an utterance.
        figures: the overview, if it is computed already.
    """
    figures = figures or overview(columns)
    bad, different = worst(columns), most_different(columns)
    sounds = players(columns, [*bad, *different], sound_of)
    parts: list[tuple[str, str, Html]] = [("overview", "Overview", sections.overview_section(columns, figures))]
    if figures.pairs:
        parts.append(("differences", "Differences", sections.differences_section(columns, figures.pairs)))
    if figures.breakdowns:
        parts.append(("parts", "Parts", sections.breakdowns_section(columns, figures.breakdowns)))
    parts.append(("confusions", "Confusions", sections.confusions_section(columns, confusions(columns))))
    for key, title, about, rows in (
        ("worst", "Worst recordings", WORST, bad),
        ("different", "Most different recordings", DIFFERENT, different),
    ):
        if rows:
            content = sections.recordings_section(key, title, about, columns, rows, sounds)
            parts.append((key, title, content))
    parts += [
        ("rows", "All recordings", sections.table_section()),
        ("origin", "Origin", sections.origin_section(columns)),
    ]
    return _document(columns, figures, parts)


def _document(columns: Columns, corpus_figures: Overview, parts: list[tuple[str, str, Html]]) -> str:
    style, script = ((assets() / PLACE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; media-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    figures = json.dumps(corpus_figures.to_dict(), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    count = counted(len(columns), "recording")
    summary = f"{count}, {duration(float(np.nansum(columns.seconds)))} of sound. Speech Workbench {__version__}."
    head = element("header", element("h1", columns.title), element("p", summary, class_="quiet"))
    navigation = sections.navigation([(key, title) for key, title, _ in parts])
    rows = packed(columns)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
            'content="light dark">',
            f"<title>{escape(columns.title)}</title><style>{style}</style></head><body>",
            head,
            navigation,
            f"<main>{joined(content for _, _, content in parts)}</main>",
            f'<script type="application/json" id="figures">{figures}</script>',
            _data("rows-head", rows.head),
            _data("rows-numbers", rows.numbers),
            *(_data("rows-texts", block) for block in rows.texts),
            f"<script>{script}</script>",
            "</body></html>",
        ]
    )


def _data(kind: str, text: str) -> str:
    return f'<script type="text/plain" class="{kind}">{text}</script>'


def write_report(directory: str | Path | Evaluation, path: str | Path | None = None) -> Path:
    """Writes the report of a directory of results, by default into it, and returns its path.

    Raises `BadInput` for a directory without results, and for a file that cannot be written.
    """
    evaluation = directory if isinstance(directory, Evaluation) else read(directory)
    return save_page(page(read_columns(evaluation), sounds_in(evaluation)), path or evaluation.path / REPORT)


def save_page(text: str, path: str | Path) -> Path:
    """Writes a report to a file and returns its path; raises an error of `write_whole` if it cannot be written."""
    path = Path(path)
    write_whole(path, text.encode(errors="replace"))
    return path


def sounds_in(evaluation: Evaluation) -> SoundOf:
    """Returns what reads the sound of a directory's utterances."""
    recordings = Recordings(evaluation.run.manifest.root)

    def sound_of(utterance: Utterance) -> tuple[np.ndarray, int]:
        sound = read_sound(recordings.source(utterance))
        return sound.samples, sound.sample_rate

    return sound_of
