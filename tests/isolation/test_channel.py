"""Cleanup of session processes: subprocesses, shared memory and folders are removed however a session ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.processes import (
    ROOT,
    Background,
    FakeMaker,
    ParallelFakeMaker,
    eventually,
    gone,
    parallel_fakes,
)
from workbench.core.errors import SessionDied
from workbench.system.tempdirs import OWNER


@pytest.fixture
def parallel(monkeypatch: pytest.MonkeyPatch) -> Iterator[ParallelFakeMaker]:
    yield from parallel_fakes(monkeypatch)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks where Linux keeps shared memory")


def has_ended(pid: int) -> bool:
    """Whether the process has ended, also if its parent has not collected its status yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def shared_memory(name: str) -> bool:
    """Whether the shared memory exists; opening it would register it in this process."""
    return Path("/dev/shm", name).exists()


class Resources:
    """The subprocesses, shared memory and folder that a session's process has created."""

    def __init__(self, meta: dict[str, Any]):
        self.child: int = meta["pid"]
        self.started: list[int] = meta["started"]
        self.folder, self.shared = Path(meta["folder"]), str(meta["shared"])
        assert len(self.started) == 2 and not any(map(has_ended, self.started))
        [file] = (each for each in self.folder.iterdir() if each.name != OWNER)
        self.second_shared = f"{file.name}-more"
        assert shared_memory(self.shared) and shared_memory(self.second_shared)

    def assert_gone(self) -> None:
        assert all(map(has_ended, self.started)), "a subprocess outlives its session's process"
        assert not self.folder.exists() and not shared_memory(self.shared) and not shared_memory(self.second_shared)


ENDS = {
    "unload": lambda session: session.unload(),
    "close": lambda session: session.close(),
}


@pytest.mark.parametrize("end", list(ENDS))
def test_subprocesses_of_a_session_process_end_with_it(parallel: ParallelFakeMaker, end: str) -> None:
    session = parallel()
    resources = Resources(session.trace("x", do="spawn").meta)
    ENDS[end](session)
    resources.assert_gone()
    assert gone(resources.child)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_subprocesses_of_a_killed_session_are_gone_when_callers_get_the_error(
    parallel: ParallelFakeMaker, number: signal.Signals
) -> None:
    session = parallel()
    call = Background(lambda: session.trace("x", do="block"))
    resources = Resources(session.trace("x", do="spawn").meta)
    os.kill(resources.child, number)
    assert isinstance(call.ended().error, SessionDied)
    resources.assert_gone()
    assert session.trace("x").meta["pid"] != resources.child


def test_killed_idle_session_is_noticed_though_a_subprocess_holds_its_socket(
    parallel: ParallelFakeMaker,
) -> None:
    session = parallel()
    resources = Resources(session.trace("x", do="spawn").meta)
    os.kill(resources.child, signal.SIGKILL)
    eventually(lambda: session.pid is None and not session.busy)
    resources.assert_gone()


def test_serial_session_ends_its_whole_process_group(fake: FakeMaker) -> None:
    session = fake()
    meta = session.trace("x", do="spawn").meta
    os.kill(meta["pid"], signal.SIGKILL)
    eventually(lambda: session.pid is None)
    assert all(map(has_ended, meta["started"])) and not shared_memory(meta["shared"])
    started = session.trace("x", do="spawn").meta["started"]
    session.unload()
    assert all(map(has_ended, started))


def test_stopped_load_leaves_no_processes(parallel: ParallelFakeMaker) -> None:
    session = parallel("spawning")
    resources = Resources({**session.trace("x").meta})
    session.close()
    resources.assert_gone()


@pytest.mark.parametrize("kind", ["ProcessSession", "ParallelSession"])
@pytest.mark.parametrize("do", ["", "block"])
def test_killed_application_leaves_no_processes_or_shared_memory(kind: str, do: str) -> None:
    script = f"""
        import json, sys, threading
        from pathlib import Path
        from workbench.isolation import concurrent, serial
        from workbench.core.settings import SessionSpec
        serial.CHILD = ("-P", "-m", "tests.support.fake_worker")
        kind = getattr(serial, {kind!r}, None) or getattr(concurrent, {kind!r})
        session = kind(SessionSpec("fake", "fake", "fake", Path("/")))
        meta = session.trace("x", do="spawn").meta
        if {do!r}:
            threading.Thread(target=lambda: list(session.stream("x", do={do!r})), daemon=True).start()
        print(json.dumps(meta), flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        meta = json.loads(parent.stdout.readline())
        parent.kill()
    processes = [meta["pid"], *meta["started"]]
    eventually(lambda: all(map(has_ended, processes)) and not shared_memory(meta["shared"]))
    if kind == "ParallelSession":
        assert meta["folder"] != tempfile.gettempdir()
        eventually(lambda: not Path(meta["folder"]).exists())
