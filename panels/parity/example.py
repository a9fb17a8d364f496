"""The comparison that the Parity tab opens with: a demo model with a skipped layer.

`python -m panels.parity.example` computes it and writes it to assets/parity/example.html.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from markupsafe import Markup

from panels.parity.view import stage_detail_html, static_html
from panels.widgets.samples import read_samples
from panels.widgets.templates import render
from workbench.parity_lab import run_parity
from workbench.parity_lab.breaking import find_fault, planted_side
from workbench.registry.registry import Registry
from workbench.registry.sources import assets

FAULT = "layer-2"
ASSET_PATH = ("parity", "example.html")


def example_html() -> str:
    """Returns the kept example as HTML; empty if there is none."""
    path = assets().joinpath(*ASSET_PATH)
    if not path.is_file():
        return ""
    return render("parity/breaking.html", "example", Markup(path.read_text(encoding="utf-8")))


def compute() -> str:
    """Plants the fault, compares, and returns the verdicts, the table and the first wrong stage as HTML."""
    fault, source = find_fault(FAULT), str(read_samples()[0].path)
    with Registry() as registry, tempfile.TemporaryDirectory() as folder:
        side = planted_side(registry, fault, source, Path(folder))
        with run_parity(registry, fault.model, source, "pytorch:f32", [side], on_progress=_report_progress) as run:
            return static_html(run) + stage_detail_html(run, 0, fault.first)


def _report_progress(share: float, activity: str) -> None:
    sys.stderr.write(f"{share:4.0%} {activity}\n")


def main() -> None:
    """Computes the example and writes it."""
    path = assets().joinpath(*ASSET_PATH)
    path.parent.mkdir(exist_ok=True)
    html = re.sub(r"<button[^>]*data-event=\"look\"[^>]*>(.*?)</button>", r"\1", compute(), flags=re.S)
    path.write_text(html + "\n", encoding="utf-8")
    sys.stdout.write(f"{path}: {path.stat().st_size >> 10} KiB\n")


if __name__ == "__main__":
    main()
