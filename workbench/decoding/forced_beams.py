"""The traced steps of a beam search: every hypothesis of a step, and the choice with which the step begins.

Step n begins with a choice among the continuations of all hypotheses: `steps.n.beams.scores` are the sums of
log-probabilities of the best candidates before any is dropped, `beams.parents` and `beams.tokens` the hypotheses that
live on, `beams.finished` the scores with the length penalty of those that have ended so far. Then the pass reads the
tokens: `steps.n.beams.b.STAGE` is a stage of hypothesis b. All sides of a comparison follow the same hypotheses, and
record what they would choose themselves. This file knows no models and no runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.decoding.beams import BeamSearch, Continuation
from workbench.decoding.generation import Decoding
from workbench.trace.ancestry import CANDIDATES, FINISHED, PARENTS, SCORES, TOKENS, Ancestry
from workbench.trace.recorder import Recorder
from workbench.trace.steps import MAX_BYTES, StepMemory, StepRecorder, TracedPasses, TracedSteps


class ForcedBeamSearch(TracedPasses):
    """The traced steps of a forced beam search: a runtime follows given hypotheses and not its own choices.

    A runtime reads the prompt and calls `choose` with the logits of every hypothesis. It reorders its caches by the
    parents that it gets, calls `recorder_of(n)`, feeds the tokens in one pass, calls `end_pass(n)`, and calls
    `choose` again.

    Args:
        ancestry: the hypotheses to follow.
        steps: the traced steps, in order; the one after the last pass has a choice only.
        wanted: the filter of stages.
        given: substituted stages, by full name.
        max_bytes: the limit for all stages of the steps.
    """

    def __init__(
        self,
        ancestry: Ancestry,
        steps: Sequence[int],
        wanted: Callable[[str], bool],
        given: Mapping[str, np.ndarray] | None = None,
        max_bytes: int = MAX_BYTES,
    ):
        super().__init__(steps, wanted, given, max_bytes)
        self.ancestry = ancestry
        self.beams = ancestry.beams
        self.passes = min(max(self.steps), ancestry.passes)  # after the prompt's
        self._search: BeamSearch | None = None
        self._step = 0

    def begin(self, decoding: Decoding) -> None:
        """Sets how the search chooses; raises `BadInput` if it has another number of beams than the hypotheses."""
        if decoding.beam_size != self.beams:
            raise BadInput(
                f"the steps to follow are those of {self.beams} beams, and beam_size is {decoding.beam_size}; expected "
                "the same number on all sides"
            )
        [limit] = np.broadcast_to(decoding.max_new_tokens, 1).tolist()
        self._search = BeamSearch(decoding, limit)

    def choose(self, logits: np.ndarray) -> Continuation | None:
        """Records the choice that begins the next step, from the logits [beams, vocabulary] of the hypotheses before.

        Returns the hypotheses to follow in it; None after the last pass.
        """
        assert self._search is not None
        self._step += 1
        own_choice = self._search.advance(logits)
        if self._step in self.steps:
            self._record(own_choice)
        if self._step > self.passes:
            return None
        rows = (each[self._step - 1] for each in (self.ancestry.parents, self.ancestry.tokens))
        followed = Continuation(*(np.array(row, dtype=np.int64) for row in rows))
        self._search.continue_with(followed)
        return followed

    def _record(self, own_choice: Continuation | None) -> None:
        assert self._search is not None and self._search.candidates is not None
        recorder, best, finished = self._recorder(), self._search.candidates, self._search.finished
        no_ids = np.empty(0, dtype=np.int64)  # no hypothesis goes on after the end
        recorder.put(SCORES, best.scores)
        recorder.put(CANDIDATES, np.column_stack([best.parents, best.tokens]))
        recorder.put(PARENTS, no_ids if own_choice is None else own_choice.parents)
        recorder.put(TOKENS, no_ids if own_choice is None else own_choice.tokens)
        if len(finished):
            recorder.put(FINISHED, finished)

    def _recorder(self) -> StepRecorder:
        return StepRecorder(self.recorder, self._step, self._memory)

    def recorder_of(self, step: int) -> BeamsRecorder | None:
        """Returns the recorder of a pass; None if its stages are not traced."""
        return BeamsRecorder(self.recorder, step, self.beams, self._memory) if step in self.steps else None

    def meta(self) -> dict[str, Any]:
        """Returns the metadata about the steps."""
        return TracedSteps(self.steps, (), self.ancestry).to_meta()


class BeamsRecorder(Recorder):
    """A recorder of one step of a beam search, in whose passes each row belongs to one hypothesis.

    Args:
        recorder: the recorder of all steps.
    """

    def __init__(self, recorder: Recorder, step: int, beams: int, memory: StepMemory):
        self._rows = tuple(StepRecorder(recorder, step, memory, beam) for beam in range(beams))
        self._filled: dict[str, np.ndarray] = {}
        self.isolated = recorder.isolated

    @property
    def rows(self) -> tuple[Recorder, ...]:
        """The recorders of the hypotheses."""
        return self._rows

    def wanted(self, stage: str) -> bool:
        """See `Recorder`."""
        return any(row.wanted(stage) for row in self._rows)

    def needs(self, stage: str) -> bool:
        """See `Recorder.needs`."""
        return any(row.needs(stage) for row in self._rows)

    def allocate(self, stage: str, shape: tuple[int, ...], kind: type = np.float32) -> np.ndarray:
        """Returns an array of zeros [beams, ...] that the caller fills; `share` records it."""
        self._filled[stage] = np.zeros(shape, dtype=kind)
        return self._filled[stage]

    def given(self, stage: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Returns the substituted rows [beams, ...]; None unless all hypotheses have one."""
        rows = [row.given(stage, (1, *shape[1:])) for row in self._rows]
        return None if any(each is None for each in rows) else np.concatenate(rows)  # type: ignore[arg-type]

    def share(self) -> None:
        """Records the arrays that were filled, row by row."""
        for stage, array in self._filled.items():
            for row, recorder in enumerate(self._rows):
                recorder.put(stage, array[row : row + 1])
        self._filled = {}
