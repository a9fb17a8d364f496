"""The arguments of `workbench report`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_report(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Writes one HTML file that needs nothing else: error rates with intervals, whether differences between models "
        "are real, the worst recordings with their sound, and a table of all. Also for a run that is not finished."
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="results of `workbench evaluate`")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the report (default: DIR/report.html)")
    parser.add_argument("--table", metavar="FILE", type=Path, help="write all rows too: .csv, .jsonl or .parquet")
    parser.add_argument("--json", action="store_true", help="print JSON")
