"""Captures of requests inside vLLM's engine: which rows of a step are theirs, where they are kept, how they come back.

A request with `SamplingParams.extra_args = {EXTRA_ARGUMENT: number}` is captured while the capture of that number is
on. The scheduler mixes requests in one step and may split a prompt over several, or compute a part of it again, so
rows are written at the position in the prompt that they belong to. Only positions of the prompt are kept.

The engine's side (`Capture`, `Captures`, `spans`) is driven by `workbench.runtimes.vllm.extension`; the front end's
side (`capturing`, `begin_capture`, `captured`, `drop_capture`) takes `call(method, *arguments)`, which returns the
first worker's answer. What crosses between the two is plain: names, shapes and the bytes of arrays, a piece at a time.
On both sides a part of many or large arrays is in a file (`workbench.trace.spill`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.errors import SessionDied, Unavailable
from workbench.trace.recorder import Recorder
from workbench.trace.spill import Spill, release
from workbench.trace.trace import StageFilter

EXTRA_ARGUMENT = "workbench_capture"
PIECE_BYTES = 32 << 20  # of one answer: large enough for few round trips, small enough not to hold up other requests

Call = Callable[..., Any]


@dataclass(frozen=True)
class RowSpan:
    """Rows of a step which are consecutive positions of the prompt of one captured request."""

    number: int  # of the capture
    start: int  # the first row, and the one after the last
    stop: int
    position: int  # of the first row in the prompt
    prompt: int  # how many positions the prompt has


def spans(
    numbers: Sequence[int], starts: Sequence[int], computed: Sequence[int], prompts: Sequence[int]
) -> list[RowSpan]:
    """The rows of a step that belong to prompts of captured requests.

    Args:
        numbers: of each request's capture in the order of the step's rows; 0 where there is none.
        starts: the row where each request begins, and last where the last one ends [requests + 1].
        computed: how many positions of each request were computed before this step.
        prompts: how many positions each request's prompt has; what follows is generated.
    """
    found = []
    for request, number in enumerate(numbers):
        start, position = int(starts[request]), int(computed[request])
        rows = min(int(starts[request + 1]) - start, int(prompts[request]) - position)
        if number and rows > 0:
            found.append(RowSpan(number, start, start + rows, position, int(prompts[request])))
    return found


class Capture:
    """The stages that match one of the globs of one captured request, as far as its prompt is computed.

    `problem` is empty, or the sentence that says why this capture cannot be had; then its arrays are given up.
    Raises `BadInput` where there is no glob.
    """

    def __init__(self, patterns: Sequence[str]):
        self.wanted = StageFilter(",".join(patterns))
        self.recorder: Recorder = _Guarded(self)  # what the network before the language model records; comes first
        self.problem = ""
        self._kept = Spill()
        self._seen = np.zeros(0, dtype=bool)

    def begin_step(self, prompt: int) -> None:
        """Before rows of a step are put: how many positions the prompt has."""
        if not len(self._seen):
            self._seen = np.zeros(prompt, dtype=bool)
        elif len(self._seen) != prompt:
            self.fail("two requests with prompts of different lengths carried the number of one capture")

    def wants(self, stage: str) -> bool:
        """Whether rows of this stage are to be put."""
        return not self.problem and self.wanted(stage)

    def put(self, stage: str, position: int, rows: np.ndarray) -> None:
        """Writes rows [n, ...] of a stage at the positions from `position` on; they are copied.

        Raises `Unavailable` where the disk has no room for what is not kept in memory.
        """
        if self.problem:
            return
        held = self._kept.arrays.get(stage)
        if held is None:
            held = self._kept.room(stage, (len(self._seen), *rows.shape[1:]), np.float32)
        held[position : position + len(rows)] = rows
        release(held)

    def end_step(self, position: int, rows: int) -> None:
        """After all stages of these positions were put."""
        self._seen[position : position + rows] = True

    def fail(self, problem: str) -> None:
        """Gives the capture up; the first sentence stays."""
        self.problem = self.problem or problem
        self._kept.clear()
        self.recorder.clear()

    def stages(self) -> dict[str, np.ndarray]:
        """What was put of each stage, in the order of the computation."""
        return {**self.recorder.stages, **self._kept.arrays}

    def missing(self) -> str:
        """The sentence that says what this capture lacks, or what became of it; empty if it is whole."""
        if self.problem:
            return self.problem
        if not len(self._seen):
            return "no request has carried the number of this capture"
        if not self._seen.all():
            return f"only {int(self._seen.sum())} of {len(self._seen)} positions of the captured prompt were computed"
        return ""


class _Guarded(Recorder):
    """A recorder whose failures are those of its capture, never the engine's."""

    def __init__(self, capture: Capture):
        super().__init__(capture.wanted)
        self._capture = capture

    def put(self, stage: str, value: np.ndarray) -> np.ndarray:
        """As `Recorder.put`."""
        try:
            return super().put(stage, value)
        except Unavailable as error:
            self._capture.fail(str(error))
            return value


class Captures:
    """The captures that are on, by number. A network that records stages of its own is given this object."""

    def __init__(self) -> None:
        self._on: dict[int, Capture] = {}

    def __len__(self) -> int:
        return len(self._on)

    def __contains__(self, number: int) -> bool:
        return number in self._on

    def get(self, number: int) -> Capture | None:
        """The capture of this number, if it is on."""
        return self._on.get(number)

    def add(self, number: int, capture: Capture) -> None:
        """Turns a capture on."""
        self._on[number] = capture

    def drop(self, number: int) -> None:
        """Turns a capture off and frees its arrays; does nothing where it is not on."""
        self._on.pop(number, None)

    def recorder(self, number: int) -> Recorder | None:
        """Takes the stages before the language model of this capture; None where it is not on."""
        capture = self._on.get(int(number))
        return capture.recorder if capture and not capture.problem else None


@contextlib.contextmanager
def capturing(call: Call, number: int, patterns: Sequence[str]) -> Iterator[None]:
    """A capture that is on within the block, in which a request runs and `captured` takes its stages.

    It is dropped however the block ends, unless the engine has died, with which it is gone.
    Raises as `begin_capture`.
    """
    begin_capture(call, number, patterns)
    try:
        yield
    except SessionDied:
        raise  # a call would start a new engine
    except BaseException:
        drop_capture(call, number)
        raise
    drop_capture(call, number)


def begin_capture(call: Call, number: int, patterns: Sequence[str]) -> None:
    """Turns on the capture of the request that will carry this number; its stages are those that match a glob.

    Raises `BadInput` where there is no glob, and `Unavailable` where the engine cannot capture.
    """
    if problem := call("workbench_begin_capture", number, list(StageFilter(",".join(patterns)).patterns)):
        raise Unavailable(problem)


def captured(call: Call, number: int) -> dict[str, np.ndarray]:
    """The stages of a captured request, in the order of the computation; the capture stays on.

    To be called once the request has given its first token. Raises `Unavailable` where the capture is not whole.
    """
    answer = call("workbench_take_capture", number)
    if answer["problem"]:
        raise Unavailable(answer["problem"])
    kept = Spill()
    for stage, dtype, shape in answer["stages"]:
        array = kept.room(stage, shape, dtype)
        place = array.reshape(-1).view(np.uint8)
        for start in range(0, array.nbytes, PIECE_BYTES):
            piece = call("workbench_take_piece", number, stage, start, PIECE_BYTES)
            expected = min(PIECE_BYTES, array.nbytes - start)
            if len(piece) != expected:
                raise Unavailable(f"the engine gave {len(piece)} bytes of stage {stage}; expected {expected}")
            place[start : start + expected] = np.frombuffer(piece, dtype=np.uint8)
        release(array)
    return kept.arrays


def drop_capture(call: Call, number: int) -> None:
    """Turns a capture off and frees its arrays in the engine; does nothing where it is not on."""
    call("workbench_drop_capture", number)
