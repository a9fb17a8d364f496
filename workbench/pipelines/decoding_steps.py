"""Adds the stages of decoding steps to the trace of a model that writes token by token.

The steps follow the ids that the caller gives, those of the trace whose stages are substituted, or those that the model
itself has written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.pipelines.tracing import SubstitutedStages
from workbench.trace.steps import Follow, StepWalk, followed_ids, read_steps
from workbench.trace.trace import StageFilter


class AskedSteps:
    """The steps that a caller asks for, checked before anything is computed.

    Args:
        steps: see `workbench.trace.steps.read_steps`.
        follow: the ids to follow; None for those of `given`, or without it for the model's own.
        given: the substituted stages.

    Raises `BadInput` for steps or ids that are not understood, and for ids without steps.
    """

    def __init__(self, steps: str, follow: Follow, given: SubstitutedStages | None = None):
        self.choice = read_steps(steps)
        self.ids: Sequence[int] | None = None
        self._given = given
        if self.choice is not None:
            self.ids = followed_ids(follow if follow is not None or given is None else given.trace)
        elif follow is not None:
            raise BadInput("ids to follow are given, and no decoding steps are asked for; name the steps too")

    @property
    def needs_ids(self) -> bool:
        """Whether the model must write a text first, whose ids the steps follow."""
        return self.choice is not None and self.ids is None

    def traced(
        self, written: Sequence[int] | None, wanted: StageFilter, follow: Callable[[StepWalk], None], whose: str
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns the stages of the steps, and the metadata about them; nothing if no steps are asked for.

        Args:
            written: the ids that the model wrote, if it `needs_ids`.
            follow: lets the model follow the ids.
            whose: the model's name in messages.

        Raises `BadInput` for steps that the generation did not take, or that take too much room.
        """
        if self.choice is None:
            return {}, {}
        ids = self.ids if self.ids is not None else written
        assert ids is not None
        walk = StepWalk(ids, self.choice.of(ids, whose), wanted, self._given)
        follow(walk)
        return walk.recorder.stages, walk.meta()
