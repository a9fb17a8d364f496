"""Captures requests inside vLLM's engine: finds their rows in each step, stores them, and sends them back.

A request with `SamplingParams.extra_args = {EXTRA_ARGUMENT: number}` is captured while the capture of that number is
on. The scheduler mixes requests in one step. It may split a prompt over several steps, or compute a part of it again.
So rows are written at their position in the prompt. Positions after the prompt are stored for the decoding steps that
are asked for (`FollowedIds`); then the request writes given ids, whatever its logits are.

`extension` drives the engine's side (`Capture`, `Captures`, `spans`). The front end's side (`capturing`,
`begin_capture`, `read_capture`, `drop_capture`) takes `call(method, *arguments)`, which returns the first worker's
answer. Only plain values cross between the two: names, shapes and the bytes of arrays, piece by piece.
On both sides, large or numerous arrays are partly stored in a file (`workbench.trace.spill`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.core.errors import BadInput, SessionDied, Unavailable
from workbench.trace.recorder import Recorder
from workbench.trace.spill import Spill, release
from workbench.trace.step_names import step_and_stage, step_stage
from workbench.trace.steps import StepMemory
from workbench.trace.trace import StageFilter

EXTRA_ARGUMENT = "workbench_capture"
# The size of one answer: large enough for few round trips, small enough not to delay other requests.
PIECE_BYTES = 32 << 20

Call = Callable[..., Any]


@dataclass(frozen=True)
class FollowedIds:
    """The ids that a captured request writes, and the decoding steps that are captured in place of its prompt.

    Step n has read n of the ids.
    """

    ids: tuple[int, ...] = ()  # none for a request that writes its own
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class RowSpan:
    """Rows of a step of the engine: consecutive positions of one captured request's prompt, or one decoding step."""

    number: int  # the capture's number
    start: int  # the first row; `stop` is the row after the last
    stop: int
    position: int  # position of the first row in the prompt; 0 in a decoding step
    prompt: int  # number of positions in the prompt
    step: int = 0  # the decoding step; 0 for the prompt
    request: int = field(default=0, compare=False)  # its place in the batch

    def name(self, stage: str) -> str:
        """Returns the name under which rows of a stage are stored."""
        return step_stage(self.step, stage) if self.step else stage


def spans(
    numbers: Sequence[int],
    starts: Sequence[int],
    computed: Sequence[int],
    prompts: Sequence[int],
    steps: Mapping[int, Sequence[int]] = {},
) -> list[RowSpan]:
    """Returns the rows of a step that belong to prompts of captured requests, or to their captured decoding steps.

    Args:
        numbers: each request's capture number in the order of the step's rows; 0 for no capture.
        starts: the first row of each request, and last the end of the last request [requests + 1].
        computed: the number of positions of each request that were computed before this step.
        prompts: the number of positions of each request's prompt; later positions are generated.
        steps: the decoding steps that are captured in place of a prompt, by the capture's number.
    """
    row_spans = []
    for request, number in enumerate(numbers):
        start, stop, position = int(starts[request]), int(starts[request + 1]), int(computed[request])
        prompt = int(prompts[request])
        rows = min(stop - start, prompt - position)
        if number and number not in steps and rows > 0:
            row_spans.append(RowSpan(number, start, start + rows, position, prompt, request=request))
        for step in steps.get(number, ()):
            row = start + prompt + step - 1 - position
            if start <= row < stop:
                row_spans.append(RowSpan(number, row, row + 1, 0, prompt, step, request))
    return row_spans


class Capture:
    """The stages of one captured request that match one of the globs, for the part of the prompt computed so far.

    `problem` is empty, or a sentence that says why the capture failed; then its arrays are freed. Raises `BadInput` if
    there is no glob.
    """

    def __init__(self, patterns: Sequence[str], followed: FollowedIds = FollowedIds()):
        self.followed = followed
        self.remaining_steps = set(followed.steps)  # decoding steps that are still to be captured
        self._bytes = StepMemory(followed.steps)
        self.stage_filter = StageFilter(",".join(patterns))
        self.recorder: Recorder = (
            Recorder(_match_nothing) if followed.steps else _Guarded(self)
        )  # the stages of the network before the language model; they come first
        self.problem = ""
        self._spill = Spill()
        self._stored = np.zeros(0, dtype=bool)

    def begin_step(self, prompt: int) -> None:
        """Begins a step; `prompt` is the number of positions in the prompt."""
        if not len(self._stored):
            self._stored = np.zeros(prompt, dtype=bool)
        elif len(self._stored) != prompt:
            self.fail("two requests with prompts of different lengths carried the number of one capture")

    def wants(self, stage: str) -> bool:
        """Returns whether rows of this stage are to be stored."""
        return not self.problem and self.stage_filter(stage)

    def put(self, stage: str, position: int, rows: np.ndarray) -> None:
        """Writes a copy of rows [n, ...] of a stage at the positions from `position` on.

        Raises `Unavailable` if the disk has no room for arrays that do not fit in memory.
        """
        if self.problem:
            return
        array = self._spill.arrays.get(stage)
        if array is None:
            stepped = step_and_stage(stage)[0] is not None
            count = len(rows) if stepped else len(self._stored)
            array = self._spill.allocate(stage, (count, *rows.shape[1:]), np.float32)
            if stepped:
                self._bytes.add(array.nbytes)
        array[position : position + len(rows)] = rows
        release(array)

    def end_step(self, position: int, rows: int) -> None:
        """Ends a step, after all stages of these positions were stored."""
        self._stored[position : position + rows] = True

    def end_decoding(self, step: int) -> None:
        """Ends a decoding step, after all its stages were stored. Later passes over its position are not stored."""
        self.remaining_steps.discard(step)
        try:
            self._bytes.end(step)
        except BadInput as error:
            self.fail(str(error))

    def fail(self, problem: str) -> None:
        """Ends the capture with a problem; an earlier problem stays."""
        self.problem = self.problem or problem
        self._spill.clear()
        self.recorder.clear()

    def stages(self) -> dict[str, np.ndarray]:
        """Returns the stored stages, in the order of the computation."""
        return {**self.recorder.stages, **self._spill.arrays}

    def failure_reason(self) -> str:
        """Returns a sentence about what the capture lacks or why it failed; empty if it is complete."""
        if self.problem:
            return self.problem
        if not len(self._stored):
            return "no request has carried the number of this capture"
        if self.remaining_steps:
            return f"the request ended before step {min(self.remaining_steps)} of its decoding"
        if not self.followed.steps and not self._stored.all():
            return (
                f"only {int(self._stored.sum())} of {len(self._stored)} positions of the captured prompt were computed"
            )
        return ""


def _match_nothing(stage: str) -> bool:
    return False


class _Guarded(Recorder):
    """A recorder whose failures become failures of its capture, not of the engine."""

    def __init__(self, capture: Capture):
        super().__init__(capture.stage_filter)
        self._capture = capture

    def put(self, stage: str, value: np.ndarray) -> np.ndarray:
        """See `Recorder.put`."""
        try:
            return super().put(stage, value)
        except Unavailable as error:
            self._capture.fail(str(error))
            return value


class Captures:
    """The active captures by number. A network that records stages itself gets this object."""

    def __init__(self) -> None:
        self._active: dict[int, Capture] = {}

    def __len__(self) -> int:
        return len(self._active)

    def __contains__(self, number: int) -> bool:
        return number in self._active

    def get(self, number: int) -> Capture | None:
        """Returns the capture of this number; None if it is off."""
        return self._active.get(number)

    def add(self, number: int, capture: Capture) -> None:
        """Turns a capture on."""
        self._active[number] = capture

    def drop(self, number: int) -> None:
        """Turns a capture off and frees its arrays; does nothing if it is off."""
        self._active.pop(number, None)

    def recorder(self, number: int) -> Recorder | None:
        """Returns the recorder for the stages before the language model; None if the capture is off."""
        capture = self._active.get(int(number))
        return capture.recorder if capture and not capture.problem else None


@contextlib.contextmanager
def capturing(
    call: Call, number: int, patterns: Sequence[str], followed: FollowedIds = FollowedIds()
) -> Iterator[None]:
    """Turns a capture on for the block, in which a request runs and `read_capture` reads its stages.

    The capture is dropped at the end of the block, except after the engine's death, which already ended it. Raises the
    same errors as `begin_capture`.
    """
    begin_capture(call, number, patterns, followed)
    try:
        yield
    except SessionDied:
        raise  # another call would start a new engine
    except BaseException:
        drop_capture(call, number)
        raise
    drop_capture(call, number)


def begin_capture(call: Call, number: int, patterns: Sequence[str], followed: FollowedIds = FollowedIds()) -> None:
    """Turns on the capture of the request that will have this number; it stores the stages that match a glob.

    Args:
        followed: the ids that the request writes, and the decoding steps that are captured.

    Raises `BadInput` if there is no glob, and `Unavailable` if the engine cannot capture.
    """
    globs = list(StageFilter(",".join(patterns)).patterns)
    following = [list(followed.ids), list(followed.steps)] if followed.steps else []
    if problem := call("workbench_begin_capture", number, globs, *following):
        raise Unavailable(problem)


def read_capture(call: Call, number: int) -> dict[str, np.ndarray]:
    """Returns the stages of a captured request, in the order of the computation; the capture stays on.

    Call it once the request has its first token. Raises `Unavailable` if the capture is incomplete.
    """
    answer = call("workbench_take_capture", number)
    if answer["problem"]:
        raise Unavailable(answer["problem"])
    spill = Spill()
    for stage, dtype, shape in answer["stages"]:
        array = spill.allocate(stage, shape, dtype)
        place = array.reshape(-1).view(np.uint8)
        for start in range(0, array.nbytes, PIECE_BYTES):
            piece = call("workbench_take_piece", number, stage, start, PIECE_BYTES)
            expected = min(PIECE_BYTES, array.nbytes - start)
            if len(piece) != expected:
                raise Unavailable(f"the engine gave {len(piece)} bytes of stage {stage}; expected {expected}")
            place[start : start + expected] = np.frombuffer(piece, dtype=np.uint8)
        release(array)
    return spill.arrays


def drop_capture(call: Call, number: int) -> None:
    """Turns a capture off and frees its arrays in the engine; does nothing if it is off."""
    call("workbench_drop_capture", number)
