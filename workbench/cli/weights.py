"""`workbench compare MODEL FILE.gguf`: compares the weights of a GGUF file with the checkpoint of a model."""

from __future__ import annotations

import argparse
import json

from workbench.artifacts.checks import checked
from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.registry.registry import Registry
from workbench.registry.sources import fetch

OF_TRACES = ("profiles", "preset", "tolerance", "stages", "float64", "same_precision", "mapping", "force")
"""Flags of the command that have no meaning for weights."""


def compare_weights(parsed: argparse.Namespace) -> int:
    """Prints what differs by more than rounding, as text or as JSON; returns the exit status, 1 if anything does."""
    model, file, as_json = str(parsed.reference), parsed.candidate, parsed.json
    for name in OF_TRACES:
        if getattr(parsed, name) not in (None, False, [], "*"):
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{flag} is for traces, and {file.name} is a GGUF file; leave out {flag}")
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
