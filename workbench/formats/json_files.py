"""Reads the small JSON files of a checkpoint: its configuration, the index of its weights, and others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.formats.text_files import read_text

LARGEST = 32 << 20  # bytes: the largest index of a published model has 9 MB


def read_json_file(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises `BadInput` with the names of the folder and the file if there is no object, and for a file that is missing,
    is a pipe or has more than `LARGEST` bytes.
    """
    where = f"{path.parent.name}/{path.name}"
    try:
        content = json.loads(read_text(path, LARGEST))
    except (BadInput, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInput(f"{where} cannot be read as JSON: {reason}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{where} holds a {type(content).__name__}; expected a JSON object")
    return content
