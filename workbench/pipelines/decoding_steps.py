"""Adds the stages of decoding steps to the trace of a model that writes token by token.

The steps follow the ids that the caller gives, those of the trace whose stages are substituted, or those that the model
itself has written; or the hypotheses of a beam search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.pipelines.tracing import SubstitutedStages
from workbench.trace.ancestry import Ancestry
from workbench.trace.steps import Follow, ForcedDecoding, followed, read_steps
from workbench.trace.trace import StageFilter


class RequestedSteps:
    """The steps that a caller asks for, checked before anything is computed.

    Args:
        steps: see `workbench.trace.steps.read_steps`.
        follow: the ids to follow; None for those of `given`, or without it for the model's own.
        given: the substituted stages.

    Raises `BadInput` for steps or ids that are not understood, and for ids without steps.
    """

    def __init__(self, steps: str, follow: Follow, given: SubstitutedStages | None = None):
        self.choice = read_steps(steps)
        self.ids: Sequence[int] | Ancestry | None = None
        self._given = given
        if self.choice is not None:
            self.ids = followed(follow if follow is not None or given is None else given.trace)
        elif follow is not None:
            raise BadInput("ids to follow are given without decoding steps; name the steps, too")

    @property
    def needs_ids(self) -> bool:
        """Whether the model must write a text first, whose ids the steps follow."""
        return self.choice is not None and self.ids is None

    def check_one_hypothesis(self, model: str) -> None:
        """Raises `BadInput` if the steps are those of a beam search, which a model does not have."""
        if isinstance(self.ids, Ancestry):
            raise BadInput(f"the steps to follow are those of a beam search, and {model} has none; expected tokens")

    def traced(
        self,
        generated_ids: Sequence[int] | Ancestry | None,
        requested_stages: StageFilter,
        follow: Callable[[Any], None],
        model: str,
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns the stages of the steps, and the metadata about them; nothing if no steps are asked for.

        Args:
            generated_ids: the ids that the model wrote, or the hypotheses that its beam search read, if it `needs_ids`.
            follow: lets the model follow them: a `ForcedDecoding`, or a `ForcedBeamSearch` of a beam search.
            model: the model's name in messages.

        Raises `BadInput` for steps that the generation did not take, or that take too much room.
        """
        if self.choice is None:
            return {}, {}
        ids = self.ids if self.ids is not None else generated_ids
        assert ids is not None
        forced: ForcedDecoding | ForcedBeamSearch
        if isinstance(ids, Ancestry):
            forced = ForcedBeamSearch(ids, self.choice.for_beams(ids, model), requested_stages, self._given)
        else:
            forced = ForcedDecoding(ids, self.choice.for_ids(ids, model), requested_stages, self._given)
        follow(forced)
        return forced.recorder.stages, forced.meta()
