"""The thread that watches the sessions of a server."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tests.support.fake_panels import FakeRegistry
from workbench.serving import sessions
from workbench.serving.sessions import SessionPool


def test_free_memory_is_released_only_while_no_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    released, checks = threading.Event(), threading.Semaphore(0)
    monkeypatch.setattr(sessions, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(sessions, "give_back_memory", released.set)
    with SessionPool(FakeRegistry()) as pool:  # type: ignore[arg-type]
        monkeypatch.setattr(pool, "unload_idle", checks.release)
        queue = SimpleNamespace(running=1)
        monkeypatch.setattr(pool.guard, "queue", queue)
        watching = pool.watch()
        for _ in range(3):
            assert checks.acquire(timeout=60)
        assert not released.is_set()
        queue.running = 0
        assert released.wait(60)
    watching.join(60)
    assert not watching.is_alive()
