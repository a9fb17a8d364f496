"""Writes the files of a corpus, and reads its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.evaluation.manifests import Bad, read_manifest
from workbench.evaluation.rows import Utterance

CUT = {
    "id": "c1",
    "start": 1.0,
    "duration": 2.0,
    "channel": 0,
    "supervisions": [{"id": "s", "start": 0, "text": "one two", "speaker": "ann", "language": "en"}],
    "recording": {
        "id": "r",
        "duration": 9.0,
        "channel_ids": [0],
        "sources": [{"type": "file", "source": "r.wav", "channels": [0]}],
    },
    "type": "MonoCut",
}


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def rows(path: Path | str) -> list[Utterance | Bad]:
    return list(read_manifest(path).rows())


def cut(**changes: Any) -> str:
    return json.dumps({**CUT, **changes})
