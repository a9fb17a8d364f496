"""Names of the stages of decoding steps: `steps.3.llm.layers.1` is the stage `llm.layers.1` of step 3.

In a beam search, `steps.3.beams.0.llm.layers.1` is that stage of hypothesis 0, and `steps.3.beams.parents` belongs to
the choice of the hypotheses, with which the step begins. This file knows names only.
"""

from __future__ import annotations

import re

CHOICE = "beams."  # the beginning of the names of a choice's stages, without their step

_STEP = re.compile(r"steps\.([0-9]{1,9})\.(?:beams\.([0-9]{1,9})\.)?(.+)")
_ANY_STEP = re.compile(r"steps\.[^.]+\.(?:beams\.[^.]+\.)?(.+)")  # in a glob


def step_stage(step: int, stage: str, beam: int | None = None) -> str:
    """Returns the name of a stage of a step, or of one hypothesis in it."""
    return f"steps.{step}.{stage}" if beam is None else f"steps.{step}.beams.{beam}.{stage}"


def step_and_stage(name: str) -> tuple[int | None, str]:
    """Returns (step, name of the stage in any pass); the step is None for stages of no step."""
    match = _STEP.fullmatch(name)
    return (int(match[1]), match[3]) if match else (None, name)


def beam_of(name: str) -> int | None:
    """Returns the hypothesis that a stage of a step belongs to; None for stages of no hypothesis."""
    match = _STEP.fullmatch(name)
    return int(match[2]) if match and match[2] is not None else None


def pass_of(name: str) -> tuple[int | None, int | None]:
    """Returns (step, hypothesis) of the pass that computes a stage; both are None for the prompt's."""
    return step_and_stage(name)[0], beam_of(name)


def is_choice(name: str) -> bool:
    """Returns whether a stage belongs to the choice of a step's hypotheses."""
    step, stage = step_and_stage(name)
    return step is not None and beam_of(name) is None and stage.startswith(CHOICE)


def glob_of_stage(glob: str) -> str:
    """Returns a glob without its part about steps: `llm.layers.*` of `steps.*.llm.layers.*`."""
    match = _ANY_STEP.fullmatch(glob)
    return match[1] if match else glob
