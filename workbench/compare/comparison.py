"""The result of a comparison of two traces. This file compares nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.compare.inputs import InputSide
from workbench.compare.presets import Tolerances
from workbench.compare.stage import StageComparison
from workbench.compare.tokens.answers import FOLLOWING, ROWS, FirstId
from workbench.compare.tokens.logits import Choice

REQUESTED = "it was asked for"  # the reason for a tolerance that was chosen


@dataclass(frozen=True)
class FirstToken:
    """The first token that differs, with the choice that decided it.

    `choice` is known if the traces hold that row of the logits, or the likeliest tokens of each step.
    """

    place: int
    reference: int | None  # None if the sequence has ended
    candidate: int | None
    choice: Choice | None
    near_tie: bool  # whether the tolerance's arithmetic explains both sides' margins


@dataclass(frozen=True)
class Comparison:
    """The complete result of a comparison of a reference and a candidate."""

    stages: tuple[StageComparison, ...]  # the common stages, in the order of the computation
    tolerances: Tolerances
    reason: str  # why this tolerance was chosen
    reference: dict[str, Any]  # metadata
    candidate: dict[str, Any]
    only_reference: tuple[str, ...]  # stages
    only_candidate: tuple[str, ...]
    first_token: FirstToken | None
    warnings: tuple[str, ...]
    inputs: InputSide | None = None  # see `side_of_inputs`
    first_id: FirstId | None = None  # of answers with parallel streams

    def __getitem__(self, stage: str) -> StageComparison:
        try:
            return next(each for each in self.stages if each.stage == stage)
        except StopIteration:
            raise KeyError(f"no stage {stage!r} was compared") from None

    @property
    def about_tolerance(self) -> str:
        """The tolerance and the reason for it, as a sentence without its full stop."""
        preset = self.tolerances.preset
        return f"The tolerance is {preset.name} ({preset.title}), as {self.reason}"

    def passes(self, stage: StageComparison) -> bool:
        """Returns whether a stage is within tolerance: by its limits, or by a near tie, which excuses tokens, text, the
        choices of a beam search, and what is made of an answer's ids.
        """
        if stage.passes or stage.near_tie:
            return True
        if stage.kind in ("tokens", "text") and not stage.stage.startswith("prompt."):
            return self.first_token is not None and self.first_token.near_tie
        return stage.stage in (ROWS, *FOLLOWING) and self.first_id is not None and self.first_id.near_tie

    @property
    def isolated(self) -> bool:
        """Whether both sides computed each stage from the same input, so that errors do not add up."""
        return self.inputs is not None

    @property
    def within(self) -> bool:
        """Whether every stage is within tolerance."""
        return all(map(self.passes, self.stages))

    @property
    def tokens_agree(self) -> bool | None:
        """Whether both sides wrote the same tokens; None if a trace does not hold them, or in another layout."""
        return next((not each.differs for each in self.stages if each.stage == "tokens" and not each.mismatch), None)

    def __repr__(self) -> str:
        stages_beyond = [each.stage for each in self.stages if not self.passes(each)]
        summary = f"{len(stages_beyond)} beyond, first {stages_beyond[0]}" if stages_beyond else "all within"
        return f"<Comparison of {len(self.stages)} stages: {summary} tolerance {self.tolerances.preset.name}>"

    def _repr_html_(self) -> str:
        from workbench.compare.display import comparison_html

        return comparison_html(self)
