"""Extends vLLM's workers: captures the stages of a request. vLLM gets the class as `worker_extension_cls`.

The methods are called through `collective_rpc` between two steps of the engine, with plain values in and out. While a
capture is on, hooks on the decoder's layers copy the rows of captured requests. While none is on, the model has no
hooks. `workbench.runtimes.vllm.capture.rows` is the front end's side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.runtimes.vllm.capture.hooks import Hooks, why_not_capturing
from workbench.runtimes.vllm.capture.rows import Capture, Captures, FollowedIds
from workbench.trace.spill import release


class Extension:
    """A mixin for vLLM's worker class; several captures may be on at once.

    With tensor parallelism, call every worker, since all of them compute logits together. The first worker's answer
    counts; the others store no arrays.
    """

    model_runner: Any  # an attribute of the worker class
    vllm_config: Any
    rank: int
    _workbench_hooks: Hooks | None = None

    def workbench_begin_capture(
        self, number: int, patterns: list[str], ids: Sequence[int] = (), steps: Sequence[int] = ()
    ) -> str:
        """Turns on the capture of the request whose `SamplingParams.extra_args` contain this number.

        The request writes the ids, if there are any, and its decoding steps of these numbers are captured too.

        Returns an empty string, or a sentence that says why this engine cannot capture.
        """
        try:
            capture = Capture(patterns, FollowedIds(tuple(ids), tuple(steps)))
        except BadInput as error:
            return str(error)
        hooks = self._workbench_hooks
        if hooks is None:
            if problem := why_not_capturing(self.model_runner, self.vllm_config):
                return problem
            first = self.rank % self.vllm_config.parallel_config.tensor_parallel_size == 0
            hooks = Hooks(self.model_runner, Captures(), stores_arrays=first)
            self._workbench_hooks = hooks
        elif number in hooks.captures:
            return f"a capture of the number {number} is on already"
        hooks.captures.add(number, capture)
        return ""

    def workbench_take_capture(self, number: int) -> dict[str, Any]:
        """Returns the contents of a capture: `problem`, a sentence or empty, and `stages`.

        `stages` has the name, numpy's dtype string and the shape of each stage, in the order of the computation.
        """
        capture = self._workbench_capture(number)
        if capture is None:
            return {"problem": f"there is no capture of the number {number}", "stages": []}
        if problem := capture.failure_reason():
            return {"problem": problem, "stages": []}
        stages = capture.stages()
        return {"problem": "", "stages": [[name, array.dtype.str, list(array.shape)] for name, array in stages.items()]}

    def workbench_take_piece(self, number: int, stage: str, start: int, size: int) -> bytes:
        """Returns at most `size` bytes of a stage's array in C order from byte `start` on; none if there is no such
        stage.
        """
        capture = self._workbench_capture(number)
        array = capture.stages().get(stage) if capture else None
        if array is None:
            return b""
        piece = np.asarray(array, order="C").reshape(-1).view(np.uint8)[start : start + size].tobytes()
        release(array)
        return piece

    def workbench_drop_capture(self, number: int) -> None:
        """Turns a capture off and frees its arrays; removes the hooks after the last one. Unknown numbers do
        nothing.
        """
        hooks = self._workbench_hooks
        if hooks is None:
            return
        hooks.captures.drop(number)
        if not hooks.captures:
            hooks.remove()
            self._workbench_hooks = None

    def workbench_answers(self) -> int:
        """Returns how many answers of several streams the worker knows (see `workbench.runtimes.vllm.streams`)."""
        state = getattr(self.model_runner, "model_state", self.model_runner)
        answers = getattr(state, "answers", None)
        return 0 if answers is None else int(answers.known_requests)

    def _workbench_capture(self, number: int) -> Capture | None:
        return self._workbench_hooks.captures.get(number) if self._workbench_hooks else None
