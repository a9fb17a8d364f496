"""The user's folders: of what the workbench can make again (converted models, logs of engines), and of settings.

They are the same on every system, beside those of the Hugging Face hub, PyTorch and vLLM, which are in ~/.cache on
macOS and Windows too; so `platformdirs`, which has other places there, is not used.
"""

from __future__ import annotations

import os
import re
from pathlib import Path


def user_cache() -> Path:
    """The folder speech-workbench in $XDG_CACHE_HOME or ~/.cache; it may not be there yet."""
    return _folder("XDG_CACHE_HOME", ".cache")


def user_config() -> Path:
    """The folder speech-workbench in $XDG_CONFIG_HOME or ~/.config; it may not be there yet."""
    return _folder("XDG_CONFIG_HOME", ".config")


def _folder(variable: str, otherwise: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / otherwise) / "speech-workbench"


def file_name(text: str) -> str:
    """Returns a model's name as part of a file name: letters, digits and a few signs; never hidden, never empty."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".-") or "model"
