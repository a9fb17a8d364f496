"""A parity run in Markdown, for a comment on a pull request: the verdicts, what got worse, and a picture of the map."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from html import escape
from pathlib import Path
from urllib.parse import quote

from workbench.parity_lab.judgement.baseline import Regression
from workbench.parity_lab.outcome import ParityRun
from workbench.parity_lab.report.map_figure import has_map, map_figure
from workbench.system.atomic_files import write_whole

SIGNS = {"within": "✅", "beyond": "❌", "unavailable": "➖", "unusable": "⚠️"}
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]()#+-!|~"})


def write_summary(run: ParityRun, path: str | Path, worse: Collection[Regression] | None = None) -> None:
    """Writes `summary` to a file, and its picture beside it as a PNG file of the same name.

    Raises an error of `write_whole` if a file cannot be written.
    """
    path = Path(path)
    image = ""
    if has_map(run):
        data = io.BytesIO()
        map_figure(run).savefig(data, format="png", facecolor="white")
        write_whole(path.with_suffix(".png"), data.getvalue())
        image = quote(path.with_suffix(".png").name)
    write_whole(path, ("\n".join(summary(run, worse, image)) + "\n").encode())


def summary(run: ParityRun, worse: Collection[Regression] | None = None, image: str = "") -> Iterator[str]:
    """Yields the lines of the document.

    Args:
        worse: what got worse since a baseline; None without a baseline.
        image: the address of a picture of the map; empty without one.
    """
    yield f"### Parity of {_escaped(run.model)}"
    yield ""
    if worse is not None:
        yield f"**{len(worse)} worse than the baseline.**" if worse else "**Nothing is worse than the baseline.**"
        yield ""
        yield from (f"- {_escaped(each.candidate)}: {_escaped(each.sentence)}" for each in worse)
        yield from [""] if worse else []
    yield "| candidate | | verdict |"
    yield "| --- | --- | --- |"
    for each in run.outcomes:
        yield f"| {_escaped(each.name)} | {SIGNS[each.status]} {each.status} | {_escaped(each.sentence)} |"
    yield ""
    yield f"Input: {_escaped(run.source.removesuffix('.'))}. Reference: {_escaped(run.reference.name)}. {run.mode}"
    if image:
        yield ""
        yield f"![relative L2 error of each stage]({image})"


def _escaped(text: str) -> str:
    """Returns a text on one line, escaped so that Markdown shows it unchanged."""
    return escape(" ".join(text.split()), quote=False).translate(_MARKS)
