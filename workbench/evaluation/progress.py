"""Estimates how long an evaluation will take, in words for a terminal or a page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from workbench.core.phrases import counted
from workbench.display.words import duration
from workbench.evaluation.schedule import EvaluationState

WINDOW_SECONDS = 60.0  # the speed is that of the last minute: recordings get longer, machines slower
MIN_SECONDS = 3.0  # before that, nothing can be said
MIN_RESULTS = 5


class Estimate:
    """Says how much is done and how much is left. It names models that have not begun, without an estimate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._model = ""
        self._seen: deque[tuple[float, int, float]] = deque()  # when, recordings and seconds of sound computed by then

    def words(self, state: EvaluationState) -> str:
        """Returns a line such as `demo/sensevoice|pytorch: 312 of 2000, 42 x real time, about 2 min left`."""
        now = self._clock()
        if state.model != self._model:
            self._model = state.model
            self._seen.clear()
        if not state.workers:
            self._seen.clear()  # loading is not computing
        elif not self._seen or now - self._seen[-1][0] >= 0.5:
            self._seen.append((now, state.computed, state.seconds))
            while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_SECONDS:
                self._seen.popleft()
        parts = [f"{state.model}: {state.model_done} of {state.model_total}"]
        if state.failed:
            parts.append(f"{state.failed} failed")
        if not state.workers and state.done < state.total:
            parts.append("loading")
        first = self._seen[0] if self._seen else (now, state.computed, state.seconds)
        passed, computed = now - first[0], state.computed - first[1]
        if passed >= MIN_SECONDS and computed >= MIN_RESULTS:
            seconds_left = (state.model_total - state.model_done) * passed / computed
            parts.append(f"{(state.seconds - first[2]) / passed:.3g} × real time")
            parts.append(f"about {duration(max(round(seconds_left), 1))} left")
        if state.left_models:
            parts.append(f"then {counted(state.left_models, 'more model')}")
        return ", ".join(parts)
