"""Sessions whose process dies: at work, between calls, while it loads, and together with its parent."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.support import fake_worker
from tests.support.processes import (
    PATIENCE,
    ROOT,
    Background,
    FakeMaker,
    eventually,
    gone,
    heard,
)
from tests.support.tiny_checkpoints import LONG, long_noise, noise
from workbench.core.errors import BadInput, SessionDied
from workbench.core.settings import SessionSpec
from workbench.isolation.serial import ProcessSession
from workbench.session.values import Transcript


@pytest.fixture(scope="module", autouse=True)
def no_core_dumps() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_crash_during_a_call_raises_one_line_error_and_the_next_call_succeeds(
    session: ProcessSession, expected: Transcript, number: signal.Signals
) -> None:
    events = session.stream(long_noise(), **LONG)
    next(events)
    pid = session.pid
    assert pid
    os.kill(pid, number)
    with pytest.raises(SessionDied) as error:
        list(events)
    assert str(error.value).startswith(f"the process of tiny on pytorch was ended by {number.name}")
    assert str(error.value).endswith("while transcribing; the next call starts a new one")
    assert "\n" not in str(error.value) and error.value.__suppress_context__
    assert list(events) == [] and gone(pid) and not session.busy
    assert heard(session.transcribe(noise(2.0))) == heard(expected)


def test_process_killed_between_calls_is_replaced_without_an_error(fake: FakeMaker) -> None:
    session = fake()
    for _ in range(5):
        session.start()
        assert session.pid
        os.kill(session.pid, signal.SIGKILL)  # the session has no time to notice it
        assert session.transcribe("x").text.endswith("/x")


def test_process_killed_before_it_received_the_call_is_replaced_without_an_error(fake: FakeMaker) -> None:
    session = fake()
    session.start()
    first_pid = session.pid
    assert first_pid
    os.kill(first_pid, signal.SIGSTOP)
    call = Background(lambda: session.trace("x"))
    eventually(lambda: session.busy)
    os.kill(first_pid, signal.SIGKILL)
    assert call.ended().error is None
    assert call.result.meta["pid"] not in (None, first_pid)


def test_native_abort_raises_one_line_error(fake: FakeMaker) -> None:
    session = fake()
    with pytest.raises(
        SessionDied, match=r"^the process of fake on fake was ended by SIGABRT while tracing; .* new one$"
    ):
        session.trace("x", do="abort")
    assert len(session.trace("x")["encoder.output"]) == 4


def test_exiting_model_raises_an_error_with_the_exit_status(fake: FakeMaker) -> None:
    session = fake()
    with pytest.raises(SessionDied, match="ended with status 3 while tracing"):
        session.trace("x", do="exit")
    assert session.trace("x")


def test_process_that_dies_while_loading_raises_an_error(fake: FakeMaker) -> None:
    session = fake("abort")
    with pytest.raises(SessionDied, match="of abort on fake was ended by SIGABRT while loading"):
        session.start()
    assert session.pid is None


def test_process_killed_while_sending_a_large_message_raises_an_error(fake: FakeMaker) -> None:
    session = fake()
    session.start()
    pid = session.pid
    assert pid
    child = psutil.Process(pid)
    idle = child.memory_info().rss
    events = session.stream("x", do="large")
    next(events)
    # The next message, which the child holds twice, does not fit into the socket: the child waits while it sends it.
    eventually(lambda: child.memory_info().rss > idle + 1.9 * fake_worker.LARGE)
    eventually(lambda: child.status() == psutil.STATUS_SLEEPING)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SessionDied, match="was ended by SIGKILL, as happens when memory runs out, while transcribing"):
        list(events)
    assert session.transcribe("x").text.endswith("/x")


@pytest.mark.skipif(sys.platform != "linux", reason="looks where Linux reports memory")
def test_idle_process_gives_freed_memory_back(fake: FakeMaker) -> None:
    session = fake()
    session.start()
    assert session.pid
    child = psutil.Process(session.pid)
    idle = child.memory_info().rss
    assert session.transcribe("x", do="scatter")
    peak = int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{child.pid}/status").read_text())[0]) * 1024
    assert peak > idle + 0.9 * fake_worker.SCATTERED
    eventually(lambda: child.memory_info().rss < idle + 0.2 * fake_worker.SCATTERED)


def test_result_of_100_megabytes_is_transferred(fake: FakeMaker) -> None:
    values = fake().trace("x", do="large")["encoder.output"]
    assert values.nbytes == 100_000_000
    np.testing.assert_array_equal(values, np.arange(len(values), dtype=np.float32))


def test_trace_written_to_a_file_is_not_transferred_between_processes(fake: FakeMaker, tmp_path: Path) -> None:
    session = fake()
    path = tmp_path / "t.safetensors"
    session.start()
    tracemalloc.start()
    trace = session.trace("x", do="large", out=path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 and trace["encoder.output"].nbytes == 100_000_000
    with pytest.raises(BadInput, match="there is no folder"):
        session.trace("x", out=tmp_path / "none" / "t.safetensors")


def test_trace_file_is_removed_when_the_process_dies(fake: FakeMaker, tmp_path: Path) -> None:
    session = fake()
    with pytest.raises(SessionDied, match="while tracing"):
        session.trace("x", do="half", out=tmp_path / "t.safetensors")
    assert not list(tmp_path.iterdir())


def test_child_process_ends_with_its_parent(spec: SessionSpec) -> None:
    script = f"""
        import sys
        from pathlib import Path
        from workbench.core.settings import SessionSpec
        from workbench.isolation.serial import ProcessSession
        session = ProcessSession(SessionSpec("tiny", "sensevoice", "pytorch", Path({str(spec.checkpoint)!r})))
        session.start()
        print(session.pid, flush=True)
        sys.stdin.read()
    """
    _check_child_ends_with_its_parent(script)


def test_child_process_ends_with_its_parent_while_loading() -> None:
    script = """
        import sys, threading
        from pathlib import Path
        from workbench.isolation import serial
        from workbench.core.settings import SessionSpec
        serial.CHILD = ("-P", "-m", "tests.support.fake_worker")
        session = serial.ProcessSession(SessionSpec("never", "fake", "fake", Path("/")))
        threading.Thread(target=session.start, daemon=True).start()
        while session.pid is None:
            pass
        print(session.pid, flush=True)
        sys.stdin.read()
    """
    _check_child_ends_with_its_parent(script)


def _check_child_ends_with_its_parent(script: str) -> None:
    """Kills a parent after its script has written the number of the child's process."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], PATIENCE)
    assert not child.is_running()
