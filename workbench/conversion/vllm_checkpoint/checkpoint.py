"""Plans and writes the directory of a checkpoint in the caller's process; `workbench.artifacts` starts one for it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.conversion.vllm_checkpoint import FAMILIES
from workbench.core.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from workbench.conversion.vllm_checkpoint.directory import ServedModel

NEEDS = ("torch", "transformers")


def plan_of(directory: Path, family: str) -> ServedModel:
    """Plans vLLM's directory of a checkpoint.

    Raises `BadInput` for a family that vLLM does not serve and for a bad checkpoint, `Unavailable` if a package is
    missing.
    """
    if family not in FAMILIES:
        raise BadInput(f"vLLM serves no models of the family {family!r:.80}; expected one of {', '.join(FAMILIES)}")
    try:
        module = import_module(f"workbench.conversion.vllm_checkpoint.{family}")
    except ImportError as error:
        raise Unavailable(
            f"converting needs the Python packages {', '.join(NEEDS)}, and {error.name} is not installed; "
            f"run: pip install {' '.join(NEEDS)}"
        ) from error
    found: ServedModel = module.plan(directory.resolve())
    return found
