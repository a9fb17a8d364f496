"""The directory that vLLM was asked to load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.runtimes.vllm.models.errors import BadRequest


def directory_of(model_config: Any) -> Path:
    """Returns the directory that vLLM was asked to load; raises `BadRequest` for a name that is not a directory."""
    directory = Path(str(model_config.model))
    if not directory.is_dir():
        raise BadRequest(f"{model_config.model} is not a directory; expected one from `workbench convert --for vllm`")
    return directory
