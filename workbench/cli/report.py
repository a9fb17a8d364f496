"""`workbench report`: the report of an evaluation, written again, its sentences, and its rows as a table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from workbench.evaluation import read
from workbench.evaluation.report import page, read_columns, write_table
from workbench.evaluation.report.overview import Overview, overview
from workbench.evaluation.report.page import REPORT, save_page, sounds_in
from workbench.evaluation.store import RESULTS, RUN, SKIPPED, UTTERANCES, Evaluation
from workbench.system.atomic_files import check_outputs


def report_on(parsed: argparse.Namespace) -> Iterator[str]:
    """Writes the report, and the table if requested; yields the lines to print."""
    evaluation = read(parsed.directory)
    stored = [evaluation.path / name for name in (RUN, UTTERANCES, SKIPPED)]
    stored += (evaluation.path / RESULTS).rglob("*.jsonl")
    check_outputs({"--out": parsed.out, "--table": parsed.table}, stored)
    found = make_report(evaluation, parsed.out, parsed.table)
    yield from [json.dumps(found.to_dict(), ensure_ascii=False)] if parsed.json else sentences(found)


def make_report(evaluation: Evaluation, out: Path | None = None, table: Path | None = None) -> Overview:
    """Writes the report of a directory of results, and its rows as a table if requested; returns the figures.

    Raises `BadInput` for a directory without results and for a file that cannot be written.
    """
    columns = read_columns(evaluation)
    if table is not None:
        write_table(columns, table)
    found = overview(columns)
    save_page(page(columns, sounds_in(evaluation), found), out or evaluation.path / REPORT)
    return found


def sentences(found: Overview) -> Iterator[str]:
    """Yields each model's rates with their intervals, then a sentence for each two models."""
    for each in found.models:
        primary = f"MER {each.primary}, " if found.rate == "MER" else ""
        yield f"{each.model}: {primary}WER {each.wer}, CER {each.cer}, {each.done} recordings, {each.failed} failed"
    for pair in found.pairs:
        yield pair.sentence
    yield found.blocks.about
