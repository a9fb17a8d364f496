"""`workbench compare MODEL FILE.gguf`: compares the weights of a GGUF file with the checkpoint of a model."""

from __future__ import annotations

import json
from pathlib import Path

from workbench.artifacts.checks import checked
from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.registry.registry import Registry
from workbench.registry.sources import fetch


def compare_weights(model: str, file: Path, as_json: bool = False) -> int:
    """Prints what differs by more than rounding, as text or as JSON; returns the exit status, 1 if anything does."""
    progress = ProgressLine()
    with Registry() as registry:
        card = registry.card(model)
        if card.kind in ("gguf", "server"):
            raise BadInput(f"{model} has no checkpoint here; expected the model that {file} should be made of")
        try:
            report = checked(fetch(card, progress.fetching), card.family, file, progress.fetching)
        finally:
            progress.clear()
    if as_json:
        print(json.dumps(report.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
        return int(report.differs)
    if len(report.clauses) > 1:
        print(f"In {report.file}:")
        for clause in report.clauses:
            print(f"  {clause}")
    else:
        print(report.sentence)
    return int(report.differs)
