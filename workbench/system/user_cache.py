"""The user's folders: a cache for files that can be made again (converted models, logs of engines), and settings.

They are the same on every system, beside those of the Hugging Face hub, PyTorch and vLLM, which use ~/.cache on macOS
and Windows too. `platformdirs` chooses other folders there, so it is not used.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from workbench.core.errors import Unavailable

CACHE_VARIABLE = "XDG_CACHE_HOME"


def user_cache() -> Path:
    """Returns the folder speech-workbench in $XDG_CACHE_HOME or ~/.cache; it may not exist yet."""
    return _folder(CACHE_VARIABLE, ".cache")


def user_config() -> Path:
    """Returns the folder speech-workbench in $XDG_CONFIG_HOME or ~/.config; it may not exist yet."""
    return _folder("XDG_CONFIG_HOME", ".config")


def _folder(variable: str, otherwise: str) -> Path:
    """Returns this project's folder; raises `Unavailable` for a user who has no home folder, as in some containers."""
    try:
        return Path(os.environ.get(variable) or Path.home() / otherwise) / "speech-workbench"
    except RuntimeError as error:
        raise Unavailable(f"this user has no home folder; set HOME or {variable} to a folder") from error


def file_name(text: str) -> str:
    """Returns a model's name as part of a file name: letters, digits and a few signs; never hidden, never empty."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".-") or "model"
