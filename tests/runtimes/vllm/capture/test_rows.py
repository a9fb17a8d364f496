"""Captured rows are stored at their positions, however the engine splits, batches and repeats the work."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput, SessionDied, Unavailable
from workbench.runtimes.vllm.capture import rows as module
from workbench.runtimes.vllm.capture.rows import (
    Capture,
    Captures,
    RowSpan,
    begin_capture,
    capturing,
    read_capture,
    spans,
)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], list[list[tuple[int, int, int]]]]:
    """Requests (number of the capture or 0, length of the prompt, all positions), and the steps of a scheduler.

    A step has some requests in any order: (request, positions computed before, positions of this step). Some
    requests are preempted and computed again.
    """
    requests = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        prompt = draw(st.integers(1, 12))
        requests.append((draw(st.sampled_from([0, number])), prompt, prompt + draw(st.integers(0, 4))))
    counts = [0] * len(requests)
    schedule: list[list[tuple[int, int, int]]] = []
    while any(counts[n] < total for n, (_, _, total) in enumerate(requests)):
        step = []
        for n in draw(st.permutations(range(len(requests)))):
            remaining = requests[n][2] - counts[n]
            rows = min(remaining, draw(st.integers(0, 5)))
            if len(schedule) > 40:
                rows = remaining  # the drawn steps might never finish
            if rows:
                step.append((n, counts[n], rows))
                counts[n] += rows
        schedule.append(step)
        if len(schedule) < 10 and draw(st.integers(0, 9)) == 0:
            counts[draw(st.integers(0, len(requests) - 1))] = 0
    return requests, schedule


def row(request: int, position: int) -> list[float]:
    return [request, position, request * 100 + position]


@given(steps())
def test_captured_rows_are_stored_at_their_positions_under_any_scheduling(case: Any) -> None:
    requests, schedule = case
    captures = Captures()
    for number, _, _ in requests:
        if number:
            captures.add(number, Capture(["llm.*"]))
    for step in schedule:
        starts = np.concatenate([[0], np.cumsum([rows for _, _, rows in step])]).astype(int)
        batch = [row(n, first_position + r) for n, first_position, rows in step for r in range(rows)]
        numbers = [requests[n][0] for n, _, _ in step]
        row_spans = spans(numbers, starts.tolist(), [c for _, c, _ in step], [requests[n][1] for n, _, _ in step])
        for span in row_spans:
            capture = captures.get(span.number)
            assert capture is not None
            capture.begin_step(span.prompt)
            capture.put("llm.norm", span.position, np.array(batch, dtype=np.float32)[span.start : span.stop])
            capture.end_step(span.position, span.stop - span.start)
    for n, (number, prompt, _) in enumerate(requests):
        if number:
            capture = captures.get(number)
            assert capture is not None
            assert not capture.failure_reason()
            expected = np.array([row(n, position) for position in range(prompt)], dtype=np.float32)
            np.testing.assert_array_equal(capture.stages()["llm.norm"], expected)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 9), st.integers(1, 8)), max_size=6),
)
def test_spans_are_the_rows_of_prompts_of_captured_requests(requests: list[tuple[int, int, int, int]]) -> None:
    starts = [0]
    expected: list[tuple[int, int, int]] = []  # number, row and position of every captured row
    for number, rows, first_position, prompt in requests:
        expected += [
            (number, starts[-1] + r, first_position + r) for r in range(rows) if number and first_position + r < prompt
        ]
        starts.append(starts[-1] + rows)
    row_spans = spans([r[0] for r in requests], starts, [r[2] for r in requests], [r[3] for r in requests])
    assert [
        (span.number, span.start + r, span.position + r) for span in row_spans for r in range(span.stop - span.start)
    ] == expected


def test_a_prompt_that_ends_within_a_step_is_cut_there() -> None:
    assert spans([0, 7], [0, 3, 8], [5, 2], [9, 4]) == [RowSpan(7, 3, 5, 2, 4)]


def complete_capture(patterns: Sequence[str] = ("*",), prompt: int = 2) -> Capture:
    capture = Capture(patterns)
    capture.begin_step(prompt)
    capture.end_step(0, prompt)
    return capture


def test_tower_stages_come_first_and_only_requested_stages_are_stored() -> None:
    capture = complete_capture(["llm.norm", "encoder.*"])
    assert capture.wants("llm.norm")
    assert not capture.wants("logits")
    capture.put("llm.norm", 0, np.ones((2, 3)))
    capture.recorder.put("encoder.output", np.zeros((4, 3)))
    capture.recorder.put("frontend.features", np.zeros((4, 3)))
    assert list(capture.stages()) == ["encoder.output", "llm.norm"]
    assert capture.stages()["llm.norm"].dtype == np.float32


def test_rows_are_copied() -> None:
    capture, rows = complete_capture(), np.ones((2, 3), dtype=np.float32)
    capture.put("llm.norm", 0, rows)
    rows[:] = 5
    np.testing.assert_array_equal(capture.stages()["llm.norm"], 1)


def test_incomplete_capture_reports_the_missing_positions() -> None:
    capture = Capture(["*"])
    assert "no request has carried" in capture.failure_reason()
    capture.begin_step(5)
    capture.end_step(1, 3)
    assert "only 3 of 5 positions" in capture.failure_reason()
    capture.begin_step(6)
    assert "prompts of different lengths" in capture.failure_reason()
    assert not capture.wants("llm.norm")


def test_failed_capture_frees_its_arrays_and_ignores_new_rows() -> None:
    capture, captures = complete_capture(), Captures()
    captures.add(3, capture)
    capture.put("llm.norm", 0, np.ones((2, 3)))
    assert captures.recorder(3) is capture.recorder
    capture.fail("the memory gave out")
    capture.fail("and then something else")
    capture.put("llm.norm", 0, np.ones((2, 3)))
    assert capture.failure_reason() == "the memory gave out"
    assert not capture.stages()
    assert captures.recorder(3) is None


def test_captures_beyond_the_memory_limit_are_spilled_with_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).standard_normal((300, 128)).astype(np.float32)

    def stages() -> dict[str, np.ndarray]:
        capture = complete_capture(prompt=300)
        capture.recorder.put("encoder.output", rows)
        for start in range(0, 300, 70):
            capture.put("llm.norm", start, rows[start : start + 70])
        return read_capture(Worker(capture.stages()), 1)

    in_memory = stages()
    monkeypatch.setattr("workbench.trace.spill.MEMORY_BYTES", 0)
    in_files = stages()
    assert all(array.base is None for array in in_memory.values())
    assert all(array.base is not None for array in in_files.values())
    for array in (*in_memory.values(), *in_files.values()):
        np.testing.assert_array_equal(array, rows)


def test_full_disk_fails_the_capture_and_not_the_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_no_space(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("workbench.trace.spill.MEMORY_BYTES", 0)
    monkeypatch.setattr(os, "posix_fallocate", raise_no_space, raising=False)
    capture, rows = complete_capture(), np.ones((300, 128), dtype=np.float32)
    assert capture.recorder.put("encoder.output", rows) is rows
    assert capture.failure_reason().startswith("there is no room for 0 MB of temporary files (No space left on device)")


def test_captures_are_dropped_by_number() -> None:
    captures = Captures()
    captures.add(3, complete_capture())
    captures.drop(4)
    assert 3 in captures
    captures.drop(3)
    captures.drop(3)
    assert not captures
    assert captures.get(3) is None
    assert captures.recorder(3) is None


class Worker:
    """Answers calls as the worker's extension does, from given arrays."""

    def __init__(self, stages: dict[str, np.ndarray], problem: str = "", refusal: str = ""):
        self.stages, self.problem, self.refusal = stages, problem, refusal
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, method: str, *arguments: Any) -> Any:
        self.calls.append((method, *arguments))
        if method == "workbench_begin_capture":
            return self.refusal
        if method == "workbench_take_capture":
            stages = [[name, array.dtype.str, list(array.shape)] for name, array in self.stages.items()]
            return {"problem": self.problem, "stages": stages}
        if method == "workbench_take_piece":
            _, stage, start, size = arguments
            return self.stages[stage].tobytes()[start : start + size]
        return None


@given(st.integers(1, 50))
def test_arrays_come_back_in_pieces(size: int) -> None:
    stages = {
        "encoder.output": np.arange(12, dtype=np.float32).reshape(3, 4),
        "predictor.count": np.array(3.5),
        "llm.norm": np.zeros((0, 4), dtype=np.float32),
        "lengths": np.arange(5),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_BYTES", size)
        arrays = read_capture(Worker(stages), 1)
    assert list(arrays) == list(stages)
    for name, array in stages.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_problems_reported_by_the_engine_are_raised_as_errors() -> None:
    with pytest.raises(Unavailable, match=r"^the memory gave out$"):
        read_capture(Worker({}, problem="the memory gave out"), 1)
    with pytest.raises(Unavailable, match=r"^open it with eager$"):
        begin_capture(Worker({}, refusal="open it with eager"), 1, ["*"])
    with pytest.raises(BadInput, match="pattern is empty"):
        begin_capture(Worker({}), 1, [" "])


def test_short_transfer_raises_unavailable_with_the_sizes() -> None:
    class Short(Worker):
        def __call__(self, method: str, *arguments: Any) -> Any:
            answer = super().__call__(method, *arguments)
            return answer[:-1] if method == "workbench_take_piece" else answer

    with pytest.raises(Unavailable, match=r"gave 15 bytes of stage llm.norm; expected 16"):
        read_capture(Short({"llm.norm": np.ones((1, 4), dtype=np.float32)}), 1)


def test_capture_is_dropped_at_the_end_of_the_block_unless_the_engine_died() -> None:
    def methods(error: Exception | None) -> list[str]:
        worker = Worker({})
        try:
            with capturing(worker, 5, ["llm.*", "logits"]):
                if error:
                    raise error
        except type(error or Exception()):
            pass
        assert worker.calls[0] == ("workbench_begin_capture", 5, ["llm.*", "logits"])
        return [method for method, *_ in worker.calls[1:]]

    assert methods(None) == ["workbench_drop_capture"]
    assert methods(BadInput("bad")) == ["workbench_drop_capture"]
    assert methods(SessionDied("gone")) == []
