"""Compares two trace files for a visitor in a separate process (`workbench.serving.child_processes.separate_process`).

The process of the server reads no trace.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.compare.files import compare_files
from workbench.compare.presets import find_preset
from workbench.core.progress import report
from workbench.serving.admission.guard import Guard


def compare_in_separate_process(
    guard: Guard, reference: str | Path, candidate: str | Path, *, profiles: bool = False, **arguments: Any
) -> dict[str, Any]:
    """Returns the JSON of `workbench compare --json` for two files.

    Waits for its turn in the queue, as comparisons are made one at a time.

    Args:
        profiles: whether to add the error of each stage over positions and over channels.
        arguments: other arguments of `workbench.compare.files.compare_files`.

    Raises `BadInput` for files that cannot be compared, `OutOfMemory` for a comparison that takes too much memory, and
    what `Work.check` raises.
    """
    if arguments.get("preset"):
        find_preset(arguments["preset"])  # says what there is
    with guard.turn("comparison"), guard.separate_process() as call:
        return dict(json.loads(call(_compared, reference, candidate, profiles, arguments)))


def _compared(reference: str | Path, candidate: str | Path, profiles: bool, arguments: dict[str, Any]) -> str:
    """Returns the comparison as JSON."""
    found = compare_files(reference, candidate, on_stage=_report_stage, **arguments)
    return "\n".join(found.lines(as_json=True, profiles=profiles))


def _report_stage(done: int, count: int, stage: str) -> None:
    report(done / max(count, 1), f"comparing {stage} ({done + 1} of {count})")
