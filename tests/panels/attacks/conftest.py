"""A public page under attack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from panels.running.sessions import SessionPool
from panels.serving import UPLOADS
from tests.panels.attacks.attacker import LIMITS, SITE
from tests.panels.conftest import Served, serve
from tests.support.fake_panels import FakeRegistry
from workbench.serving.admission.guard import Guard


@pytest.fixture(scope="module")
def public(uploads: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UPLOADS, str(uploads))
        pool = SessionPool(FakeRegistry(), guard=Guard("public", LIMITS))  # type: ignore[arg-type]
        yield from serve(pool, origins=[SITE])


@pytest.fixture
def client(public: Served, uploads: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setenv(UPLOADS, str(uploads))  # each test has another folder
    public.registry.gate.set()
    with httpx.Client(base_url=public.url, timeout=60) as client:
        yield client
        assert client.get("/health").json()["status"] == "ok"  # the page is alive
