"""Decoding steps in a trace: their names, which of them a trace holds, and the ids that they follow.

Step n is the pass that reads the n-th generated token and computes the logits of the next one, so step 1 is the first
after the prompt's pass. Its stages are `steps.n.STAGE`, such as `steps.3.llm.layers.1`; the row of `steps.n.logits`
decides `tokens[n]`. All sides of a comparison follow the same ids, one step at a time through the cache. This file
knows no models and no runtimes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.trace.ancestry import Ancestry, ancestry_in, ancestry_of_stages
from workbench.trace.recorder import Recorder
from workbench.trace.step_names import step_and_stage, step_stage
from workbench.trace.trace import Trace

KEY = "steps"  # in the metadata: {"traced": [1, 2], "followed": [17, 4, 9]}; of a beam search, with its ancestry
BEAMS = "beams"  # the ancestry among them
FIRST, ALL = "first", "all"
MAX_BYTES = 1 << 30  # of the stages of all traced steps: 150 steps of a model with 28 layers and 150,000 tokens
EXPECTED = f"expected {FIRST}, {ALL}, or numbers from 1 on such as 1,5,20"

Follow = Trace | str | Path | Sequence[int] | np.ndarray | Ancestry | None
"""What the steps follow: a trace with steps or with `tokens`, the path of one, the generated ids, or the hypotheses of
a beam search."""


@dataclass(frozen=True)
class StepChoice:
    """The requested steps; `numbers` is empty for all steps."""

    numbers: tuple[int, ...] = ()

    def for_ids(self, ids: Sequence[int], writer: str) -> tuple[int, ...]:
        """Returns the requested steps of a generation that wrote these ids.

        The generation took len(ids) - 1 steps, because no pass reads the last id. Raises `BadInput` for a later step.
        """
        last = len(ids) - 1
        if last < 1 or (self.numbers and self.numbers[-1] > last):
            request = f"step {self.numbers[-1]}" if self.numbers else "a decoding step"
            took = "the prompt's pass alone" if last < 1 else "step 1 alone" if last == 1 else f"steps 1 to {last}"
            raise BadInput(
                f"{request} was asked for, and {writer} wrote {counted(len(ids), 'token')}, which takes {took}"
            )
        return self.numbers or tuple(range(1, last + 1))

    def for_beams(self, ancestry: Ancestry, writer: str) -> tuple[int, ...]:
        """Returns the requested steps of a beam search. Its last step only ends the search, and has no pass.

        Raises `BadInput` if a step is not among them.
        """
        last = ancestry.passes + 1
        if self.numbers and self.numbers[-1] > last:
            raise BadInput(f"step {self.numbers[-1]} was asked for, and the beam search of {writer} took {last} steps")
        return self.numbers or tuple(range(1, last + 1))


def read_steps(text: str | Sequence[int] | int | None) -> StepChoice | None:
    """Returns the steps in `first`, `all` or numbers with commas between them; None for none.

    Raises `BadInput` for anything else.
    """
    if text is None or text == "":
        return None
    words = [str(each) for each in text] if isinstance(text, (list, tuple)) else str(text).split(",")
    words = [word.strip() for word in words]
    if words in ([FIRST], [ALL]):
        return StepChoice((1,) if words == [FIRST] else ())
    if not words or not all(re.fullmatch("[0-9]{1,7}", word) and int(word) for word in words):
        raise BadInput(f"the steps are {text!r:.80}; {EXPECTED}")
    return StepChoice(tuple(sorted({int(word) for word in words})))


def followed(follow: Follow) -> list[int] | Ancestry | None:
    """Returns the ids, or the hypotheses of a beam search, that steps are to follow; None if they are not given.

    Raises `BadInput` if a trace holds none, and for values that are not ids.
    """
    if follow is None or isinstance(follow, Ancestry):
        return follow
    subject = "the ids to follow"
    if isinstance(follow, (str, Path)):
        from workbench.trace.read import read_trace

        follow = read_trace(follow)
    if isinstance(follow, Trace):
        traced_steps = steps_of(follow)
        if traced_steps is not None:
            return list(traced_steps.followed) if traced_steps.ancestry is None else traced_steps.ancestry
        if (ancestry := ancestry_of_stages(follow)) is not None:
            return ancestry
        if "tokens" not in follow:
            raise BadInput(
                f"{follow.label} has neither decoding steps nor tokens to follow; expected one that was traced with "
                "steps, or with the stage tokens"
            )
        subject, follow = f"the tokens of {follow.label}", follow["tokens"]
    array = np.asarray(follow)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu" or (array < 0).any():
        raise BadInput(f"{subject} are not a list of token ids; expected whole numbers from 0 on")
    ids: list[int] = array.astype(np.int64).tolist()
    return ids


@dataclass(frozen=True)
class TracedSteps:
    """What the metadata of a trace say about its steps."""

    traced: tuple[int, ...]
    followed: tuple[int, ...]  # the known ids; step n has read the first n of them
    ancestry: Ancestry | None = None  # replaces the ids in a beam search

    def to_meta(self) -> dict[str, Any]:
        """Returns the entry for a trace's metadata."""
        beams = {} if self.ancestry is None else {BEAMS: self.ancestry.to_meta()}
        return {KEY: {"traced": list(self.traced), "followed": list(self.followed), **beams}}


def steps_of(trace: Trace) -> TracedSteps | None:
    """Returns the steps in a trace's metadata; None if there are none. Raises `BadInput` for damaged metadata."""
    fields = trace.meta.get(KEY)
    if fields is None:
        return None
    lists = [fields.get(name) for name in ("traced", "followed")] if isinstance(fields, Mapping) else []
    if not lists or not all(isinstance(each, list) and all(type(n) is int and n >= 0 for n in each) for each in lists):
        raise BadInput(
            f"the metadata of {trace.label} have {KEY} = {fields!r:.60}; expected lists of traced steps and ids"
        )
    traced, ids = (tuple(each or ()) for each in lists)
    return TracedSteps(traced, ids, ancestry_in(fields[BEAMS], trace.label) if BEAMS in fields else None)


class TracedPasses:
    """Records the traced passes of a generation, and limits the memory for their stages.

    Args:
        steps: the traced steps, in order.
        wanted: the filter of stages.
        given: substituted stages, by full name.
        max_bytes: the limit for all stages of the steps.
    """

    def __init__(
        self,
        steps: Sequence[int],
        wanted: Callable[[str], bool],
        given: Mapping[str, np.ndarray] | None,
        max_bytes: int,
    ):
        self.steps = tuple(steps)
        self.recorder = Recorder(wanted, given)
        self._memory = StepMemory(self.steps, max_bytes)

    @property
    def prefill(self) -> Recorder | None:
        """The recorder of the prompt's pass: it substitutes the given stages and records none. None without `given`."""
        return self.recorder.substituting if self.recorder.isolated else None

    def end_pass(self, step: int) -> None:
        """Ends a pass; raises `BadInput` once it is clear that the steps need more than `max_bytes`."""
        if step in self.steps:
            self._memory.end(step)


class ForcedDecoding(TracedPasses):
    """The traced steps of a forced decoding (teacher forcing): a runtime reads given ids and not its own choices.

    A runtime reads the prompt, then feeds `ids[0]`, `ids[1]` and so on, each in one pass with the cache of all passes
    before it. Before pass n it calls `recorder_of(n)`, and after the pass `end_pass(n)`.

    Args:
        ids: the generated ids to follow.
        steps: the traced steps, in order.
        wanted: the filter of stages.
        given: substituted stages, by full name.
        max_bytes: the limit for all stages of the steps.
    """

    def __init__(
        self,
        ids: Sequence[int],
        steps: Sequence[int],
        wanted: Callable[[str], bool],
        given: Mapping[str, np.ndarray] | None = None,
        max_bytes: int = MAX_BYTES,
    ):
        super().__init__(steps, wanted, given, max_bytes)
        self.last = max(self.steps)
        self.ids = tuple(int(each) for each in ids)
        self.fed_ids = self.ids[: self.last]  # by all passes together

    def next_id(self, count: int) -> int:
        """Returns the id that follows the first `count` ids; after the last pass, any id."""
        return self.fed_ids[min(count, len(self.fed_ids) - 1)]

    def recorder_of(self, step: int) -> StepRecorder | None:
        """Returns the recorder of a pass; None if its stages are not traced. Pass 0 is the prompt's."""
        return StepRecorder(self.recorder, step, self._memory) if step in self.steps else None

    def meta(self) -> dict[str, Any]:
        """Returns the metadata about the steps."""
        return TracedSteps(self.steps, self.ids).to_meta()


class StepMemory:
    """Counts the bytes of the stages of steps, and refuses too many before they are computed.

    Args:
        max_bytes: the limit for all steps.
    """

    def __init__(self, steps: Sequence[int], max_bytes: int = MAX_BYTES):
        self._steps, self._max_bytes = tuple(steps), max_bytes
        self._earlier_bytes = self._step_bytes = 0

    def add(self, count: int) -> None:
        """Counts the bytes of a stage of the step that runs."""
        self._step_bytes += count

    def end(self, step: int) -> None:
        """Ends a step. Later steps need at least as much. Raises `BadInput` if all steps together need too much."""
        step_bytes, self._step_bytes = self._step_bytes, 0
        self._earlier_bytes += step_bytes
        remaining_steps = sum(each > step for each in self._steps)
        expected = self._earlier_bytes + remaining_steps * step_bytes
        if expected > self._max_bytes:
            raise BadInput(
                f"{counted(len(self._steps), 'decoding step')} with these stages would take {expected / 1e9:.2g} GB; "
                f"expected at most {self._max_bytes / 1e9:.2g} GB: trace fewer steps (such as 1,10,100) or fewer stages"
            )


class StepRecorder(Recorder):
    """A recorder of one step, whose networks name their stages as in any other pass.

    Args:
        recorder: the recorder of all steps.
        beam: the hypothesis of a beam search that it records.
    """

    def __init__(self, recorder: Recorder, step: int, memory: StepMemory | None = None, beam: int | None = None):
        self._recorder, self._step, self._beam = recorder, step, beam
        self._bytes = memory or StepMemory(())
        self.isolated = recorder.isolated

    def wanted(self, stage: str) -> bool:
        """See `Recorder`."""
        return self._recorder.wanted(self._name(stage))

    @property
    def stages(self) -> dict[str, np.ndarray]:
        """The recorded stages of this step, by the names that the network gives them."""
        split = {name: step_and_stage(name) for name in self._recorder.stages}
        return {split[name][1]: array for name, array in self._recorder.stages.items() if split[name][0] == self._step}

    def needs(self, stage: str) -> bool:
        """See `Recorder.needs`."""
        return self._recorder.needs(self._name(stage))

    def put(self, stage: str, value: np.ndarray) -> np.ndarray:
        """See `Recorder.put`."""
        if self.wanted(stage):
            self._bytes.add(value.nbytes)
        return self._recorder.put(self._name(stage), value)

    def allocate(self, stage: str, shape: tuple[int, ...], kind: type = np.float32) -> np.ndarray:
        """See `Recorder.allocate`."""
        array = self._recorder.allocate(self._name(stage), shape, kind)
        self._bytes.add(array.nbytes)
        return array

    def given(self, stage: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """See `Recorder.given`."""
        return self._recorder.given(self._name(stage), shape)

    def clear(self) -> None:
        """Drops the stages of all steps."""
        self._recorder.clear()

    def _name(self, stage: str) -> str:
        return step_stage(self._step, stage, self._beam)
