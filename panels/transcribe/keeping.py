"""Runs of the Transcribe tab as files: the results, the settings and the recordings, so that a link shows them again.

It turns a run into plain JSON values and back. `panels.running.run_store` has the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from panels.running.choices import ModelOnRuntime
from panels.running.kept_files import found_file, stored_files
from panels.running.run_store import RunStore
from panels.transcribe.job import Instead, Row, RunState
from workbench.core.errors import BadInput
from workbench.session.reading import read_transcript
from workbench.text.rates import score
from workbench.text.scripts import clipped

TAB = "transcribe"
TITLE_COLUMNS = 60
JSON_SCALARS = (str, int, float, bool)  # values of inputs that are kept; a file of an option is not
FINAL = ("done", "failed", "stopped")


@dataclass(frozen=True)
class RunInputs:
    """The values of the inputs at the start of a run."""

    cells: tuple[str, ...]
    reference: str
    normaliser: str
    values: tuple[Any, ...] = ()  # values of the inputs for options and settings


@dataclass(frozen=True)
class KeptRun:
    """A run as the store kept it: its results, its inputs, and its recordings."""

    state: RunState
    inputs: RunInputs
    recordings: tuple[str, ...]  # paths of those that were kept, in their order


def title_of(state: RunState) -> str:
    """Returns a run's line in the list of earlier runs: the recordings, the models, and the first words."""
    names = list(dict.fromkeys(row.recording for row in state.rows))
    models = list(dict.fromkeys(row.title for row in state.rows))
    first_text = next((row.transcript.text for row in state.rows if row.transcript and row.transcript.text), "")
    recordings = names[0] if len(names) == 1 else f"{len(names)} recordings"
    who = models[0] if len(models) == 1 else f"{len(models)} models"
    return f"{recordings} · {who}" + (f" · {clipped(first_text, TITLE_COLUMNS)}" if first_text else "")


def keep(store: RunStore, state: RunState, inputs: RunInputs) -> str:
    """Stores a finished run; returns its key."""
    paths = list(dict.fromkeys(row.path for row in state.rows))
    sounds, files = stored_files(paths)
    content = {
        "tab": TAB,
        "title": title_of(state),
        "rows": [_row_json(row, paths) for row in state.rows],
        "sounds": [sounds[path] for path in paths],
        "stopped": state.stopped,
        "seconds": state.seconds,
        "instead": asdict(state.instead) if state.instead else None,
        "cells": list(inputs.cells),
        "reference": inputs.reference,
        "normaliser": inputs.normaliser,
        "values": [value if isinstance(value, JSON_SCALARS) else None for value in inputs.values],
    }
    return store.keep(content, files)


def find(store: RunStore, key: str) -> KeptRun:
    """Returns a run that was kept; raises `BadInput` if it is gone or belongs to another tab."""
    content, folder = store.read(key)
    if content.get("tab") != TAB:
        raise BadInput(f"that link leads to a run of another tab, {content.get('tab')!r:.40}")
    sounds = [found_file(each, folder) for each in content["sounds"]]
    normaliser = content["normaliser"]
    rows = tuple(_row(each, sounds, normaliser) for each in content["rows"])
    instead = Instead(**content["instead"]) if content.get("instead") else None
    return KeptRun(
        RunState(rows, True, content["stopped"], content["seconds"], instead),
        RunInputs(tuple(content["cells"]), content["reference"], normaliser, tuple(content["values"])),
        tuple(path for path in sounds if Path(path).is_file()),
    )


def _row_json(row: Row, paths: Sequence[str]) -> dict[str, Any]:
    return {
        "sound": paths.index(row.path),
        "cell": row.cell.value,
        "title": row.title,
        "reference": row.reference,
        "status": row.status if row.status in FINAL else "stopped",
        "transcript": row.transcript.to_dict() if row.transcript else None,
        "error": row.error,
        "weight_bytes": row.weight_bytes,
        "writing": row.writing,
    }


def _row(found: Mapping[str, Any], sounds: Sequence[str], normaliser: str) -> Row:
    transcript = read_transcript(found["transcript"]) if found["transcript"] else None
    reference, path = found["reference"], sounds[found["sound"]]
    return Row(
        f"{found['sound']}:{found['cell']}",
        Path(path).name,
        path,
        ModelOnRuntime.parse(found["cell"]),
        found["title"],
        reference,
        found["status"],
        None,
        transcript,
        score(reference, transcript.text, normaliser) if transcript and reference is not None else None,
        found["error"],
        found["weight_bytes"],
        found["writing"],
    )
