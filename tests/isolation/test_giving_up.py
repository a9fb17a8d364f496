"""Cancellation of sessions: closed and dropped streams, cancelled calls, and sessions closed at any moment."""

from __future__ import annotations

import gc
import selectors
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psutil
import pytest

from tests.support import fake_worker
from tests.support.processes import PATIENCE, Background, FakeMaker, children, eventually, gone, heard
from tests.support.tiny_checkpoints import LONG, long_noise, noise
from workbench.core.errors import BadInput, Cancelled, SessionDied
from workbench.isolation.serial import ProcessSession
from workbench.session.values import Progress, Transcript

# Cancelled calls.


def test_closing_a_stream_stops_the_computation(fake: FakeMaker) -> None:
    session = fake()
    with closing(session.stream("x", do="many")) as events:
        assert [type(next(events)) for _ in range(3)] == [Progress] * 3
        pid = session.pid
    assert not session.busy
    computed = int(session.transcribe("x", do="report").text)
    assert 0 < computed < fake_worker.MANY and session.pid == pid


def test_garbage_collected_stream_stops_the_computation(fake: FakeMaker) -> None:
    session = fake()
    events = session.stream("x", do="many")
    next(events)
    del events
    gc.collect()
    assert int(session.transcribe("x", do="report").text) < fake_worker.MANY


def test_dropped_stream_in_a_reference_cycle_blocks_no_caller(fake: FakeMaker) -> None:
    session = fake()
    gc.disable()  # so that only the session itself can end the stream
    try:
        for caller in (lambda call: call(), lambda call: Background(call).ended().result):
            cycle: list[object] = [session.stream("x", do="many")]
            next(cycle[0])  # type: ignore[call-overload]
            cycle.append(cycle)
            del cycle
            assert session.busy
            assert int(caller(lambda: session.transcribe("x", do="report")).text) < fake_worker.MANY
    finally:
        gc.enable()


def test_unread_stream_starts_no_process(fake: FakeMaker) -> None:
    session = fake()
    session.stream("x").close()
    session.stream("x")
    assert session.pid is None and not session.busy


def test_results_are_right_after_a_stream_was_closed(session: ProcessSession, expected: Transcript) -> None:
    for _ in range(3):
        with closing(session.stream(long_noise(), **LONG)) as events:
            next(events)
        assert heard(session.transcribe(noise(2.0))) == heard(expected)


def test_cancelling_from_another_thread(session: ProcessSession, expected: Transcript) -> None:
    session.start()
    pid, started = session.pid, threading.Event()

    def listen() -> None:
        for _ in session.stream(long_noise(), **LONG):
            started.set()

    call = Background(listen)
    assert started.wait(PATIENCE)
    session.cancel()
    assert isinstance(call.ended().error, Cancelled)
    assert heard(session.transcribe(noise(2.0))) == heard(expected) and session.pid == pid


def test_cancelling_a_long_blocking_step_ends_the_process(fake: FakeMaker) -> None:
    session = fake()
    started = threading.Event()

    def listen() -> None:
        for _ in session.stream("x", do="block"):
            started.set()

    call = Background(listen)
    assert started.wait(PATIENCE)
    session.cancel()
    assert isinstance(call.ended().error, Cancelled)
    assert session.transcribe("x").text.endswith("/x")


def test_cancelling_while_loading_ends_the_process(fake: FakeMaker) -> None:
    session = fake("never")
    call = Background(session.start)
    eventually(lambda: session.pid is not None)
    session.cancel()
    assert isinstance(call.ended().error, Cancelled)
    assert session.pid is None and not session.busy


def test_cancel_without_a_running_call_has_no_effect(fake: FakeMaker) -> None:
    session = fake()
    session.cancel()
    assert session.transcribe("x")
    session.cancel()
    assert session.transcribe("x")


def test_ctrl_c_during_a_call_leaves_the_session_usable(fake: FakeMaker) -> None:
    session = fake()
    events = session.stream("x", do="block")
    next(events)
    pid = session.pid
    assert pid
    main = threading.main_thread().ident
    assert main

    def interrupt_the_wait() -> None:
        eventually(lambda: sys._current_frames()[main].f_code.co_filename == selectors.__file__)
        signal.pthread_kill(main, signal.SIGINT)

    def wait() -> None:
        Background(interrupt_the_wait)
        next(events)

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert not session.busy
    assert session.transcribe("x").text.endswith("/x"), "the blocked step ended with its process"
    assert session.pid != pid


def test_second_call_during_an_open_stream_in_the_same_thread_is_refused(fake: FakeMaker) -> None:
    session = fake()
    events = session.stream("x", do="many")
    next(events)
    for call in (session.transcribe, session.trace, lambda audio: next(session.stream(audio))):
        with pytest.raises(BadInput, match="a stream of fake is still open here"):
            call("x")
    session.start()  # it has started, so there is nothing to wait for
    next(events)
    events.close()
    assert session.transcribe("x")


def test_stream_can_be_read_by_another_thread(fake: FakeMaker) -> None:
    session = fake()
    events = session.stream("x", do="many")
    next(events)
    reading, release = threading.Event(), threading.Event()

    def read_on() -> None:
        next(events)
        reading.set()
        assert release.wait(PATIENCE)
        list(events)

    reader = Background(read_on)
    assert reading.wait(PATIENCE)
    with ThreadPoolExecutor(1) as pool:  # another caller waits for its turn
        waiting = pool.submit(session.transcribe, "x")
        release.set()
        assert session.transcribe("x") and waiting.result(PATIENCE)
    assert reader.ended().error is None


# The end.


def test_closing_leaves_no_process_and_refuses_further_calls(fake: FakeMaker) -> None:
    session = fake()
    session.start()
    pid = session.pid
    assert pid
    session.close()
    session.close()
    assert session.pid is None and gone(pid)
    for call in (session.start, lambda: session.transcribe("x"), lambda: session.trace("x")):
        with pytest.raises(BadInput, match="the session of fake is closed; open it again"):
            call()


def test_closing_the_session_during_a_call_ends_the_call_with_an_error(fake: FakeMaker) -> None:
    session = fake()
    started = threading.Event()

    def listen() -> None:
        for _ in session.stream("x", do="block"):
            started.set()

    call = Background(listen)
    assert started.wait(PATIENCE)
    waiting = Background(lambda: session.transcribe("x"))
    pid = session.pid
    assert pid
    session.close()
    error = call.ended().error
    assert isinstance(error, SessionDied) and str(error) == "the session of fake on fake was closed while transcribing"
    assert isinstance(waiting.ended().error, BadInput)
    assert gone(pid)


def test_closing_the_session_ends_the_own_open_stream_with_an_error(fake: FakeMaker) -> None:
    session = fake()
    events = session.stream("x", do="many")
    next(events)
    waiting = Background(lambda: session.transcribe("x"))
    session.close()
    assert isinstance(waiting.ended().error, BadInput), "a caller that waits for its turn gets an error"
    with pytest.raises(SessionDied, match="was closed"):
        list(events)


def test_closing_the_session_while_loading_ends_the_process(fake: FakeMaker) -> None:
    session = fake("never")
    call = Background(session.start)
    eventually(lambda: session.pid is not None)
    pid = session.pid
    assert pid
    session.close()
    assert isinstance(call.ended().error, SessionDied) and gone(pid)


def test_closing_at_any_moment_leaves_no_process(fake: FakeMaker) -> None:
    children_before = children()
    for n in range(10):
        session = fake()
        call = Background(lambda session=session: session.transcribe("x"))  # type: ignore[misc]
        call.thread.join(0.02 * n)
        session.close()
        assert call.ended().error is None or isinstance(call.error, (SessionDied, BadInput))
    assert children() <= children_before


def test_unload_releases_open_files(fake: FakeMaker) -> None:
    session = fake()
    session.start()
    files = psutil.Process().num_fds()
    for _ in range(5):
        session.unload()
        session.start()
    assert psutil.Process().num_fds() <= files
