"""Names of the stages of decoding steps: `steps.3.llm.layers.1` is the stage `llm.layers.1` of step 3.

This file knows names only.
"""

from __future__ import annotations

import re

_STEP = re.compile(r"steps\.([0-9]{1,9})\.(.+)")
_ANY_STEP = re.compile(r"steps\.[^.]+\.(.+)")  # in a glob


def step_stage(step: int, stage: str) -> str:
    """Returns the name of a stage of a step."""
    return f"steps.{step}.{stage}"


def step_and_stage(name: str) -> tuple[int | None, str]:
    """Returns (step, name of the stage in any pass); the step is None for stages of no step."""
    found = _STEP.fullmatch(name)
    return (int(found[1]), found[2]) if found else (None, name)


def glob_of_stage(glob: str) -> str:
    """Returns a glob without its part about steps: `llm.layers.*` of `steps.*.llm.layers.*`."""
    found = _ANY_STEP.fullmatch(glob)
    return found[1] if found else glob
