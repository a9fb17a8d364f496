from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtimes.vllm.remote.fake_server import FakeServer, fake_server
from workbench.core.settings import Server
from workbench.runtimes.vllm.remote.client import Client


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to servers of this machine bypass proxies."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def serving() -> Iterator[tuple[FakeServer, Server]]:
    with fake_server() as fake_and_address:
        yield fake_and_address


@pytest.fixture
def fake(serving: tuple[FakeServer, Server]) -> FakeServer:
    return serving[0]


@pytest.fixture
def server(serving: tuple[FakeServer, Server]) -> Server:
    return serving[1]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = Client(server, "mine")
    yield client
    client.close()
