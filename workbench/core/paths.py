"""Values that name a file or a folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput


def checked_path(value: Any, what: str) -> Path:
    """Returns a text or a path object as a path; raises `BadInput` for any other value, which `what` names."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise BadInput(f"{what} is of type {type(value).__name__}; expected a path")
    return Path(path)


def status_of(path: Path) -> os.stat_result | None:
    """Returns the status of what a path names; None if there is nothing, or no path can have that name.

    Raises `OSError` where the system refuses to look, as for a name that is too long. `Path.exists`, `is_dir` and
    `is_file` hide such errors from Python 3.14 on.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last one for a null character
        return None


def is_directory(path: Path) -> bool:
    """Returns whether a path names a directory; raises the errors of `status_of`."""
    status = status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)
