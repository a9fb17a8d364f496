"""Helpers for tests of sessions in processes: calls in the background, waiting, and children that misbehave."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from workbench.core.settings import SessionSpec
from workbench.isolation import channel, serial
from workbench.isolation.concurrent import ParallelSession
from workbench.isolation.serial import ProcessSession
from workbench.prepared import pool as prepared
from workbench.prepared.kinds import Kind
from workbench.prepared.pool import PreparedProcesses
from workbench.session.values import Transcript

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds; a busy machine is slow, a deadlock takes for ever
FAKE_CHILD = ("-P", "-m", "tests.support.fake_worker")
FakeMaker = Callable[..., ProcessSession]
ParallelFakeMaker = Callable[..., ParallelSession]
Fake = TypeVar("Fake", ProcessSession, ParallelSession)


def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaker]:
    """Yields a maker of sessions of `tests.support.fake_worker`, and closes them in the end."""
    yield from _makers(ProcessSession, monkeypatch)


def parallel_fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[ParallelFakeMaker]:
    """As `fakes`, of sessions that take several calls at once."""
    yield from _makers(ParallelSession, monkeypatch)


def _makers(session_class: type[Fake], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Fake]]:
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)
    sessions: list[Fake] = []

    def make(name: str = "fake", admitted: Callable[[Any], AbstractContextManager[None]] | None = None) -> Fake:
        sessions.append(session_class(SessionSpec(name, "fake", "fake", Path("/")), admitted))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


@contextlib.contextmanager
def forked_fakes(runtime: str = "fake") -> Iterator[PreparedProcesses]:
    """Within the block sessions of `tests.support.fake_worker` are forked from a prepared process.

    Args:
        runtime: what goes wrong in that process, see `tests.support.fake_preparation`.
    """
    pool = PreparedProcesses()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serial, "CHILD", FAKE_CHILD)
        patch.setattr(channel, "WORKER", FAKE_CHILD)
        patch.setattr(channel, "PREPARED", pool)
        patch.setattr(prepared, "MODULE", "tests.support.fake_preparation")
        patch.setattr(channel, "kind_of", lambda spec: Kind(runtime, language=False))
        pool.use()
        try:
            yield pool
        finally:
            pool.close()


def children() -> set[int]:
    """The processes that this one has started, zombies among them."""
    return {child.pid for child in psutil.Process().children()}


def heard(transcript: Transcript) -> tuple[Any, ...]:
    """What should be the same every time."""
    return transcript.text, transcript.language, transcript.tokens, transcript.segments, transcript.tags


def eventually(condition: Callable[[], bool]) -> None:
    """Waits until it holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether no process and no zombie of that number is left."""
    return not psutil.pid_exists(pid)


def caught(call: Callable[[], Any]) -> BaseException:
    """What the call raises."""
    try:
        call()
    except BaseException as error:
        return error
    pytest.fail("the call raised nothing")


class Background:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]):
        self.result: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self.thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.result = call()
        except BaseException as error:
            self.error = error

    def ended(self) -> Background:
        """The call, when it has ended."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the call never ended"
        return self


class Listener:
    """A stream that is read in the background."""

    def __init__(self, calls: Any, do: str):
        self.begun = threading.Event()
        self.calls, self.do = calls, do
        self.call = Background(self._listen)

    def _listen(self) -> None:
        for _ in self.calls.stream("x", do=self.do):
            self.begun.set()

    def wait(self) -> None:
        assert self.begun.wait(PATIENCE)

    def ended(self) -> BaseException | None:
        return self.call.ended().error
