"""Sessions with several concurrent calls: calls run in parallel and do not affect each other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

import pytest

from tests.support import fake_worker
from tests.support.fake_worker import PARTIES
from tests.support.processes import (
    Background,
    Listener,
    ParallelFakeMaker,
    caught,
    eventually,
    gone,
    parallel_fakes,
)
from workbench.core.errors import BadInput, Cancelled, SessionDied, Unavailable, WorkbenchError
from workbench.core.progress import listening
from workbench.isolation.concurrent import ParallelSession
from workbench.isolation.worker import EVENTS_AHEAD
from workbench.session.values import Progress, Transcript


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[ParallelFakeMaker]:
    yield from parallel_fakes(monkeypatch)


# Side by side.


def test_calls_run_side_by_side_in_one_process(fake: ParallelFakeMaker) -> None:
    session = fake()
    with ThreadPoolExecutor(PARTIES) as pool:  # none of them ends before all have started
        traces = list(pool.map(lambda n: session.trace(f"{n}", do="meet"), range(PARTIES)))
    assert len({trace.meta["pid"] for trace in traces}) == 1
    assert [Path(trace.meta["audio"]).name for trace in traces] == [str(n) for n in range(PARTIES)]
    assert not session.busy


def test_single_thread_reads_several_streams_in_turn(fake: ParallelFakeMaker) -> None:
    session = fake()
    streams = [session.stream(f"{n}", do="many") for n in range(4)]
    for _ in range(3 * EVENTS_AHEAD):
        assert [type(next(events)) for events in streams] == [Progress] * 4
    assert session.busy and session.transcribe("x").text.endswith("/x")
    for events in streams:
        events.close()
    assert not session.busy


def test_unread_stream_blocks_no_other_call_and_is_computed_only_slightly_ahead(fake: ParallelFakeMaker) -> None:
    session = fake()
    with closing(session.stream("x", do="many")) as events:
        next(events)
        eventually(lambda: int(session.transcribe("x", do="report").text) >= EVENTS_AHEAD)
        for _ in range(50):
            assert session.transcribe("y").text.endswith("/y")
        assert int(session.transcribe("x", do="report").text) <= EVENTS_AHEAD + 1
        assert [next(events).done for _ in range(500)] == list(range(1, 501)), "the stream continues where it was"  # type: ignore[union-attr]


def test_a_stream_gives_all_its_events_in_order(fake: ParallelFakeMaker) -> None:
    *events, last = fake().stream("x", do="many")
    assert [event.done for event in events[1:]] == list(range(1, fake_worker.MANY + 1))  # type: ignore[union-attr]
    assert isinstance(last, Transcript)


@pytest.mark.parametrize(
    ("do", "kind", "sentence"),
    [
        ("refuse", BadInput, "the fake refuses"),
        ("fault", WorkbenchError, "fake on fake failed: ValueError: first line second line"),
        ("exit", WorkbenchError, "fake on fake failed: SystemExit: 3"),
        ("lambda", WorkbenchError, "fake on fake failed: "),
    ],
)
def test_error_of_a_call_does_not_affect_other_calls(
    fake: ParallelFakeMaker, do: str, kind: type[Exception], sentence: str
) -> None:
    session = fake()
    with closing(session.stream("x", do="many")) as events:
        next(events)
        pid = session.pid
        error = caught(lambda: session.trace("x", do=do))
        assert type(error) is kind and str(error).startswith(sentence)
        assert isinstance(next(events), Progress) and session.pid == pid


# A process that dies.


def test_killed_process_gives_each_of_eight_calls_an_error_and_the_next_call_succeeds(fake: ParallelFakeMaker) -> None:
    session = fake()
    listeners = [Listener(session, "block") for _ in range(8)]
    for listener in listeners:
        listener.wait()
    first_pid = session.pid
    assert first_pid
    os.kill(first_pid, signal.SIGKILL)
    for listener in listeners:
        error = listener.ended()
        assert type(error) is SessionDied and str(error) == (
            "the process of fake on fake was ended by SIGKILL, as happens when memory runs out, while transcribing; "
            "the next call starts a new one"
        )
    assert not session.busy and gone(first_pid)
    assert session.trace("x").meta["pid"] not in (None, first_pid)


def test_process_killed_between_calls_is_replaced_without_an_error(fake: ParallelFakeMaker) -> None:
    session = fake()
    for _ in range(5):
        session.start()
        pid = session.pid
        assert pid
        os.kill(pid, signal.SIGKILL)  # the session has no time to notice it
        with ThreadPoolExecutor(4) as pool:
            assert all(each.text.endswith("/x") for each in pool.map(session.transcribe, ["x"] * 4))


def test_start_returns_immediately_during_a_call(fake: ParallelFakeMaker) -> None:
    session = fake()
    with closing(session.stream("x", do="many")) as events:
        next(events)
        session.start()
        assert not session.unload() and session.busy


def test_native_abort_ends_every_concurrent_call_with_an_error(fake: ParallelFakeMaker) -> None:
    session = fake()
    listener = Listener(session, "block")
    listener.wait()
    with pytest.raises(SessionDied, match="was ended by SIGABRT while tracing"):
        session.trace("x", do="abort")
    assert "was ended by SIGABRT while transcribing" in str(listener.ended())


# Loading.


def test_concurrent_callers_share_a_single_load(fake: ParallelFakeMaker) -> None:
    loads = []

    def admitted(newcomer: ParallelSession) -> AbstractContextManager[None]:
        loads.append(newcomer)
        return nullcontext()

    session = fake(admitted=admitted)
    calls = [Background(lambda: session.trace("x")) for _ in range(8)]
    assert len({call.ended().result.meta["pid"] for call in calls}) == 1
    assert loads == [session] and session.load_seconds > 0


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("refuse", BadInput, "the fake does not load"),
        ("abort", SessionDied, "the process of abort on fake was ended by SIGABRT while loading; "),
    ],
)
def test_failed_load_raises_an_error_for_each_waiting_caller(
    fake: ParallelFakeMaker, name: str, kind: type[Exception], sentence: str
) -> None:
    session = fake(name)
    calls = [Background(session.start) for _ in range(4)]
    errors = [call.ended().error for call in calls]
    assert all(type(error) is kind and str(error).startswith(sentence) for error in errors)
    assert len(set(map(id, errors))) == 4 and session.pid is None and not session.busy


def test_refused_admission_starts_no_process(fake: ParallelFakeMaker) -> None:
    refusals: list[Exception] = [Unavailable("no room"), OSError("no disk")]

    def admitted(newcomer: ParallelSession) -> AbstractContextManager[None]:
        if refusals:
            raise refusals.pop()
        return nullcontext()

    session = fake(admitted=admitted)
    with pytest.raises(WorkbenchError, match=r"^fake on fake could not be loaded: OSError: no disk$"):
        session.start()
    with pytest.raises(Unavailable, match=r"^no room$"):
        session.transcribe("x")
    assert session.pid is None and not session.busy
    assert session.transcribe("x")


def test_load_is_stopped_when_its_last_waiting_caller_cancels(fake: ParallelFakeMaker) -> None:
    session = fake("never")
    slot = session.slot()
    first, second = Background(session.start), Background(lambda: slot.transcribe("x"))
    eventually(lambda: session.pid is not None)
    pid = session.pid
    assert pid and session.loading and session.busy

    def second_ended() -> bool:
        slot.cancel()  # does nothing before the second call has begun to wait
        return not second.thread.is_alive()

    eventually(second_ended)
    assert type(second.error) is Cancelled
    assert session.pid == pid and first.thread.is_alive()
    session.cancel()
    assert type(first.ended().error) is Cancelled and str(first.error) == "loading with never was stopped"
    assert session.pid is None and gone(pid) and not session.busy and not session.loading


def test_exception_in_the_progress_listener_stops_the_load(fake: ParallelFakeMaker) -> None:
    reports: list[tuple[float, str]] = []

    def listener(fraction: float, activity: str) -> None:
        reports.append((fraction, activity))
        if len(reports) > 3 and fraction == 0.5:
            raise InterruptedError

    session = fake("stuck")
    with listening(listener), pytest.raises(InterruptedError):
        session.start()
    assert reports[0] == (0.0, "loading stuck") and set(reports[1:-1]) <= {reports[0], (0.5, "half way")}
    assert session.pid is None and not session.busy


def test_call_reports_progress_of_a_reload_in_the_child_process(fake: ParallelFakeMaker) -> None:
    session, reports = fake(), list[tuple[float, str]]()
    session.start()
    with listening(lambda *report: reports.append(report)):
        session.trace("x", do="restart")
    assert (0.25, "starting again") in reports
