"""Values that name a file or a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput


def checked_path(value: Any, what: str) -> Path:
    """Returns a text or a path object as a path; raises `BadInput` for any other value, which `what` names."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise BadInput(f"{what} is of type {type(value).__name__}; expected a path")
    return Path(path)
