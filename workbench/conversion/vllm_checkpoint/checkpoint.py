"""Plans and writes the directory of a checkpoint in the caller's process; `workbench.artifacts` starts one for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.core.errors import BadInput
from workbench.core.packages import VLLM_CONVERSION, check_packages
from workbench.families import FAMILIES, load

if TYPE_CHECKING:
    from workbench.conversion.vllm_checkpoint.directory import VllmCheckpoint


def plan_of(directory: Path, family: str) -> VllmCheckpoint:
    """Plans vLLM's directory of a checkpoint.

    Raises `BadInput` for a family that vLLM does not serve and for a bad checkpoint, `Unavailable` if a package is
    missing.
    """
    writers = {name: each.vllm.writer for name, each in FAMILIES.items() if each.vllm.writer}
    if family not in writers:
        raise BadInput(f"vLLM serves no models of the family {family!r:.80}; expected one of {', '.join(writers)}")
    check_packages("converting needs", VLLM_CONVERSION)
    model: VllmCheckpoint = load(writers[family]).plan(directory.resolve())
    return model
