"""Cancellation of sessions with several concurrent calls: streams, calls and sessions that end at any moment."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.support.processes import Background, Listener, ParallelFakeMaker, children, eventually, gone, parallel_fakes
from workbench.core.errors import BadInput, Cancelled, SessionDied
from workbench.isolation.worker import EVENTS_AHEAD
from workbench.session.values import Transcript


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[ParallelFakeMaker]:
    yield from parallel_fakes(monkeypatch)


# Cancelled calls.


def test_closing_a_stream_stops_only_its_own_computation(fake: ParallelFakeMaker) -> None:
    session = fake()
    other_stream = session.stream("y", do="x")
    next(other_stream)
    with closing(session.stream("x", do="many")) as events:
        for _ in range(3 * EVENTS_AHEAD):
            next(events)
    computed = int(session.transcribe("x", do="report").text)
    assert computed <= 4 * EVENTS_AHEAD + 1
    assert isinstance(list(other_stream)[-1], Transcript) and not session.busy


def test_garbage_stream_in_a_reference_cycle_blocks_no_call(fake: ParallelFakeMaker) -> None:
    session = fake()
    cycle: list[object] = [session.stream("x", do="many")]
    next(cycle[0])  # type: ignore[call-overload]
    cycle.append(cycle)
    del cycle
    assert session.transcribe("y").text.endswith("/y")
    gc.collect()
    assert not session.busy


def test_cancel_ends_all_calls_at_once_even_unresponsive_ones(fake: ParallelFakeMaker) -> None:
    session = fake()
    listeners = [Listener(session, do) for do in ("many", "block", "block")]
    for listener in listeners:
        listener.wait()
    pid = session.pid
    session.cancel()
    for listener in listeners:
        assert type(listener.ended()) is Cancelled
        assert str(listener.ended()) == "transcribing with fake was stopped"
    assert not session.busy
    assert session.transcribe("x") and session.pid == pid, "the process continues beside a call that does not stop"


def test_cancel_of_a_slot_stops_only_the_calls_of_that_slot(fake: ParallelFakeMaker) -> None:
    session = fake()
    first_slot, second_slot = session.slot(), session.slot()
    listeners = [Listener(slot, "block") for slot in (first_slot, first_slot, second_slot)]
    for listener in listeners:
        listener.wait()
    first_slot.cancel()
    assert [type(listener.ended()) for listener in listeners[:2]] == [Cancelled] * 2
    assert session.busy and listeners[2].call.thread.is_alive()
    assert first_slot.transcribe("x").text.endswith("/x"), "the slot accepts further calls"
    second_slot.close()
    assert type(listeners[2].ended()) is Cancelled
    assert session.pid


def test_cancel_without_a_running_call_has_no_effect(fake: ParallelFakeMaker) -> None:
    session = fake()
    session.cancel()
    assert session.transcribe("x")
    session.cancel()
    assert session.transcribe("x")


# The end.


def test_unload_closes_the_model_and_the_next_call_starts_a_new_process(
    fake: ParallelFakeMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("FAKE_LOG", str(log))
    session = fake("logging")
    first_pid = session.trace("x").meta["pid"]
    assert session.log == log and not log.exists()
    assert session.unload() and session.unload()
    assert log.read_text() == "closed", "the model was closed"
    assert gone(first_pid) and session.pid is None and session.memory_bytes == 0
    assert session.trace("x").meta["pid"] != first_pid


def test_closing_the_session_ends_running_calls_and_refuses_new_ones(fake: ParallelFakeMaker) -> None:
    session = fake()
    listeners = [Listener(session, "block") for _ in range(3)]
    for listener in listeners:
        listener.wait()
    pid = session.pid
    session.close()
    session.close()
    for listener in listeners:
        assert str(listener.ended()) == "the session of fake on fake was closed while transcribing"
    assert pid and gone(pid) and session.pid is None
    for call in (session.start, lambda: session.transcribe("x"), lambda: session.trace("x")):
        with pytest.raises(BadInput, match="the session of fake is closed; open it again"):
            call()


def test_closing_the_session_while_loading_ends_the_process(fake: ParallelFakeMaker) -> None:
    session = fake("never")
    call = Background(session.start)
    eventually(lambda: session.pid is not None)
    pid = session.pid
    session.close()
    assert pid and gone(pid)
    assert str(call.ended().error) == "the session of never on fake was closed while loading"


def test_closing_at_any_moment_leaves_no_process(fake: ParallelFakeMaker) -> None:
    children_before = children()
    for n in range(8):
        session = fake()
        call = Background(lambda session=session: session.transcribe("x"))  # type: ignore[misc]
        call.thread.join(0.02 * n)
        session.close()
        assert call.ended().error is None or isinstance(call.error, (SessionDied, BadInput))
    eventually(lambda: children() <= children_before)


def test_unload_releases_open_files_and_threads(fake: ParallelFakeMaker) -> None:
    session = fake()
    session.start()
    files, threads = psutil.Process().num_fds(), threading.active_count()
    for _ in range(5):
        session.unload()
        session.start()
    eventually(lambda: psutil.Process().num_fds() <= files and threading.active_count() <= threads)


# Anything at any time.


@pytest.mark.parametrize("seed", range(3))
def test_random_kills_unloads_and_cancels_end_every_call_and_leave_the_session_usable(
    fake: ParallelFakeMaker, seed: int
) -> None:
    """Readers that read to the end, stop early, drop the stream or meet an error; kills, unloads and cancels."""
    session = fake()
    allowed = (BadInput, Cancelled, SessionDied)

    def reader(number: int) -> None:
        draw = random.Random(f"{seed} {number}")
        for _ in range(12):
            do = draw.choice(["many", "", "refuse", "large"][: 3 if number else 4])
            limit = draw.choice([1, 5, 100])
            try:
                with closing(session.stream(f"{number}", do=do)) as events:
                    for place, event in enumerate(events):
                        if isinstance(event, Transcript):
                            assert event.text.endswith(f"/{number}")
                        if place == limit:
                            break
            except allowed:
                pass

    def trouble() -> None:
        draw = random.Random(seed)
        for _ in range(12):
            action = draw.choice(["kill", "unload", "cancel", "start"])
            try:
                if action != "kill":
                    getattr(session, action)()
                elif pid := session.pid:
                    os.kill(pid, signal.SIGKILL)
            except (*allowed, ProcessLookupError):
                pass

    calls = [Background(lambda number=number: reader(number)) for number in range(6)]  # type: ignore[misc]
    calls.append(Background(trouble))
    assert [call.ended().error for call in calls] == [None] * len(calls)
    assert session.transcribe("x").text.endswith("/x") and not session.busy
