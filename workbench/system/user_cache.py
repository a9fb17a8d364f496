"""Where the workbench keeps what it can make again: files of converted models, logs of engines."""

from __future__ import annotations

import os
import re
from pathlib import Path


def user_cache() -> Path:
    """The folder speech-workbench in $XDG_CACHE_HOME or ~/.cache; it may not be there yet."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "speech-workbench"


def file_name(text: str) -> str:
    """A model's name as a part of a file's: letters, figures and a few signs, never hidden, never empty."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".-") or "model"
