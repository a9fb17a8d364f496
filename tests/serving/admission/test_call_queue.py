"""The call queue: limits, fair order between visitors, and time slices of long calls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_worker import MANY
from tests.support.processes import FakeMaker, fakes
from tests.support.waits import until
from workbench.core.errors import BadInput, Busy, Cancelled
from workbench.core.visitors import Visitor, Work, working
from workbench.serving.admission.call_queue import BEAT_SECONDS, CallQueue, Turn
from workbench.serving.admission.limits import LOCAL
from workbench.session.values import Transcript

PATIENCE = 20.0


def visitor(name: str) -> Visitor:
    return Visitor(f"10.0.0.{ord(name)}", name)


def order_of(queue: CallQueue, calls: list[tuple[str, str]]) -> list[str]:
    """Returns the visitors in the order in which they are served, after one call that blocks all of them."""
    served: list[str] = []
    blocking_call = Work(visitor("*"))

    def call(name: str, resource: str) -> None:
        with queue.turn(Work(visitor(name)), resource):
            served.append(name)

    threads = []
    with queue.turn(blocking_call, "model"):
        for count, (name, resource) in enumerate(calls, 1):
            threads.append(threading.Thread(target=call, args=(name, resource)))
            threads[-1].start()
            until(lambda count=count: queue.waiting == count)  # type: ignore[misc]
    for thread in threads:
        thread.join(PATIENCE)
    return served


def test_visitor_with_many_calls_waits_behind_a_visitor_with_one_call() -> None:
    queue = CallQueue(LOCAL)
    assert order_of(queue, [("a", "model")] * 5 + [("b", "model")])[:2] == ["a", "b"]
    assert queue.running == queue.waiting == 0


def test_a_busy_model_does_not_hold_up_another() -> None:
    queue = CallQueue(replace(LOCAL, running=2))
    with queue.turn(Work(visitor("a")), "model"), queue.turn(Work(visitor("b")), "other"):
        assert queue.running == 2


def test_full_queue_is_refused_with_a_message_and_retry_time() -> None:
    queue = CallQueue(replace(LOCAL, waiting_per_visitor=1, waiting=2, per_address=1))
    stop = threading.Event()
    with queue.turn(Work(visitor("a")), "model"):
        threads = []
        for count, name in enumerate("bc", 1):
            work = Work(visitor(name), stop)

            def wait(work: Work = work) -> None:
                with pytest.raises(Cancelled), queue.turn(work, "model"):
                    pass

            threads.append(threading.Thread(target=wait))
            threads[-1].start()
            until(lambda count=count: queue.waiting == count)  # type: ignore[misc]
        with pytest.raises(Busy, match="1 of your calls wait already"), queue.turn(Work(visitor("b")), "model"):
            pass
        with (
            pytest.raises(Busy, match=r"^2 calls wait on this server, .* in about \d+ s$") as full,
            queue.turn(Work(visitor("d")), "model"),
        ):
            pass
        assert full.value.retry_seconds > 0
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert queue.waiting == 0


def test_waiting_call_reports_position_and_time_and_ends_at_its_deadline() -> None:
    queue, reports = CallQueue(LOCAL), []
    work = Work(visitor("b"), deadline=0.0, allowed_seconds=600.0)
    with queue.turn(Work(visitor("a")), "model"):
        with pytest.raises(BadInput, match="longer than the 10 min"), queue.turn(work, "model"):
            pass

        def report(_: float, sentence: str) -> None:
            reports.append(sentence)
            raise Cancelled("enough")

        with pytest.raises(Cancelled), queue.turn(Work(visitor("b")), "model", on_progress=report):
            pass
    assert reports == ["waiting for another visitor's run (position 1, about 2 s)"]


def test_nested_call_does_not_wait_for_a_slot() -> None:
    queue, work = CallQueue(replace(LOCAL, running=1)), Work(visitor("a"))
    with queue.turn(work, "model"), queue.turn(work, "other"):
        assert queue.running == 1


def test_long_call_yields_to_waiting_calls_between_its_slices() -> None:
    queue, events = CallQueue(LOCAL, slice_seconds=0.0), []
    long, short = Work(visitor("a")), Work(visitor("b"))

    def call() -> None:
        with queue.turn(short, "model"):
            events.append("short")

    with queue.turn(long, "model") as turn:
        thread = threading.Thread(target=call)
        thread.start()
        until(lambda: turn.delays_others)
        events.append("first slice")
        turn.release()
        turn.reacquire(long)
        events.append("second slice")
        assert not turn.delays_others
        thread.join(PATIENCE)
    assert events == ["first slice", "short", "second slice"]


@pytest.mark.parametrize(("seconds", "expected"), [(1e6, ["b", "c", "a"]), (0.0, ["b", "a", "c"])])
def test_new_calls_run_before_a_yielded_call_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: list[str]
) -> None:
    monkeypatch.setattr("workbench.serving.admission.call_queue.TURNS_OF_OTHERS", seconds)
    queue, served = CallQueue(LOCAL, slice_seconds=0.0), list[str]()
    long_work, yielded, released = Work(visitor("a")), threading.Event(), threading.Event()

    def long() -> None:
        with queue.turn(long_work, "model") as turn:
            until(lambda: turn.delays_others)
            turn.release()
            yielded.set()
            turn.reacquire(long_work)
            served.append("a")

    def short(name: str, work: Callable[[], object]) -> None:
        with queue.turn(Work(visitor("b")), "model"):  # served later than the visitor of the long call
            work()
            served.append(name)

    calls = (long, partial(short, "b", partial(released.wait, PATIENCE)), partial(short, "c", int))
    threads = [threading.Thread(target=call) for call in calls]
    threads[0].start()
    until(lambda: queue.running == 1)
    threads[1].start()
    assert yielded.wait(PATIENCE)
    threads[2].start()
    until(lambda: queue.waiting == 2)
    released.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert served == expected


def test_long_call_yields_processors_to_short_calls_of_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.serving.admission.call_queue.TURNS_OF_OTHERS", 1e9)
    queue, long, resumed = CallQueue(LOCAL, slice_seconds=0.0, processors=1), Work(visitor("a")), threading.Event()

    def resume(turn: Turn) -> None:
        turn.reacquire(long)
        resumed.set()

    with ThreadPoolExecutor() as threads, queue.turn(long, "model") as turn:
        assert not turn.delays_others
        with queue.turn(Work(visitor("b")), "other"):
            assert turn.delays_others
            turn.release()
            resumption = threads.submit(resume, turn)
            assert not resumed.wait(2.5 * BEAT_SECONDS) and queue.waiting == 1
        resumption.result(PATIENCE)
        assert not turn.delays_others  # no other call runs


def test_long_call_resumes_beside_short_calls_after_its_waiting_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.serving.admission.call_queue.TURNS_OF_OTHERS", 0.0)
    queue, long = CallQueue(LOCAL, slice_seconds=0.0, processors=1), Work(visitor("a"))
    with queue.turn(long, "model") as turn, queue.turn(Work(visitor("b")), "other"):
        assert turn.delays_others
        turn.release()
        turn.reacquire(long)
        assert queue.running == 2


def test_long_calls_do_not_yield_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = CallQueue(LOCAL, slice_seconds=0.0, processors=1)
    with queue.turn(Work(visitor("a")), "model") as first, queue.turn(Work(visitor("b")), "other") as second:
        assert first.delays_others and not second.delays_others  # the second has just become a long call
        assert not first.delays_others
    monkeypatch.setattr("workbench.serving.admission.call_queue.SHORT_SECONDS", 0.0)
    with queue.turn(Work(visitor("a")), "model") as first, queue.turn(Work(visitor("b")), "other"):
        assert not first.delays_others  # the other is a long call too, although it never yields


def test_no_call_yields_while_processors_are_idle() -> None:
    queue = CallQueue(LOCAL, slice_seconds=0.0, processors=2)
    with queue.turn(Work(visitor("a")), "model") as turn, queue.turn(Work(visitor("b")), "other"):
        assert not turn.delays_others


def test_short_call_does_not_yield_to_waiting_calls() -> None:
    queue = CallQueue(LOCAL, slice_seconds=60.0)

    def call() -> None:
        with queue.turn(Work(visitor("b")), "model"):
            pass

    with queue.turn(Work(visitor("a")), "model") as turn:
        thread = threading.Thread(target=call)
        thread.start()
        until(lambda: queue.waiting == 1)
        assert not turn.delays_others
    thread.join(PATIENCE)
    assert queue.running == queue.waiting == 0


def test_long_queue_uses_little_processor_time() -> None:
    queue, stop = CallQueue(replace(LOCAL, waiting=100)), threading.Event()

    def wait(number: int) -> None:
        with contextlib.suppress(Cancelled), queue.turn(Work(Visitor(f"10.0.0.{number}", "x"), stop), "model"):
            pass

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(64)]
    with queue.turn(Work(visitor("a")), "model"):
        for thread in threads:
            thread.start()
        until(lambda: queue.waiting == len(threads))
        start_time, start_cpu = time.monotonic(), time.process_time()
        for _ in range(200):  # calls for another model come and go meanwhile
            with queue.turn(Work(visitor("b")), "other"):
                pass
        stop.wait(2.0 - (time.monotonic() - start_time))
        assert time.process_time() - start_cpu < 1.0
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert queue.waiting == 0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaker]:
    yield from fakes(monkeypatch)


def stream_in_turn(queue: CallQueue, session: Any, work: Work, do: str, started: threading.Event) -> list[Any]:
    """Returns the events of a session's stream for a visitor in the queue; sets `started` at the first one."""
    with queue.turn(work, "model") as turn, working(replace(work, turn=turn)):
        events = []
        for event in session.stream("x", do=do):
            events.append(event)
            started.set()
        return events


def test_short_recording_runs_between_the_slices_of_a_long_recording(fake: FakeMaker) -> None:
    queue, session, started = CallQueue(LOCAL, slice_seconds=0.0), fake(), threading.Event()
    with ThreadPoolExecutor() as threads:
        long = threads.submit(stream_in_turn, queue, session, Work(visitor("a")), "many", started)
        assert started.wait(PATIENCE)
        pid = session.pid
        short = stream_in_turn(queue, session, Work(visitor("b")), "", threading.Event())
        assert isinstance(short[-1], Transcript) and not long.done()
        assert session.busy and not session.unload()  # the long call runs in the same process
        counts = [event.done for event in long.result()[1:-1]]
    assert counts == list(range(1, MANY + 1)) and session.pid == pid and not session.busy


def test_short_recording_keeps_its_turn_to_its_end(fake: FakeMaker) -> None:
    queue, session, started, finished = CallQueue(LOCAL, slice_seconds=0.0), fake(), threading.Event(), list[str]()
    session.short_seconds = float("inf")

    def call(name: str, do: str, started: threading.Event) -> None:
        work = Work(visitor(name))
        with queue.turn(work, "model") as turn, working(replace(work, turn=turn)):
            for _ in session.stream("x", do=do):
                started.set()
            finished.append(name)

    with ThreadPoolExecutor() as threads:
        first = threads.submit(call, "a", "many", started)
        assert started.wait(PATIENCE)
        call("b", "", threading.Event())
        first.result()
    assert finished == ["a", "b"]


def test_cancel_between_two_slices_does_not_affect_other_visitors(fake: FakeMaker) -> None:
    queue, session, started = CallQueue(LOCAL, slice_seconds=0.0), fake(), threading.Event()
    cancelled_work, other_work = Work(visitor("a")), Work(visitor("b"))

    def cancel_when_another_waits() -> None:
        with queue.turn(cancelled_work, "model") as turn, working(replace(cancelled_work, turn=turn)):
            for _ in session.stream("x", do="many"):
                started.set()
                until(lambda: turn.delays_others)
                cancelled_work.stop.set()

    with ThreadPoolExecutor() as threads:
        cancelled_call = threads.submit(cancel_when_another_waits)
        assert started.wait(PATIENCE)
        other_call = threads.submit(stream_in_turn, queue, session, other_work, "many", threading.Event())
        with pytest.raises(Cancelled):
            cancelled_call.result()
        assert len(other_call.result()) == MANY + 2
    assert not session.busy and queue.running == queue.waiting == 0


def test_paused_time_does_not_count_towards_the_deadline() -> None:
    work = Work(deadline=time.monotonic() - 5.0, allowed_seconds=1.0, paused=[60.0])
    work.check()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_each_waiting_visitor_is_served_between_two_calls_of_one_visitor(names: list[str]) -> None:
    served = order_of(CallQueue(LOCAL), [(name, "model") for name in names])
    assert sorted(served) == sorted(names)
    for place, name in enumerate(served):
        later = served.index(name, place + 1) if name in served[place + 1 :] else None
        if later is not None:
            assert set(served[later:]) - {name} <= set(served[place + 1 : later])
