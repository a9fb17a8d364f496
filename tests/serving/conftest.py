"""The routes over models that compute nothing, and OpenAI's own client of these routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from starlette.testclient import TestClient

from tests.support.fake_chat import FakeChatRegistry, add_families
from workbench.serving.server import application
from workbench.serving.service import Service
from workbench.serving.sessions import SessionPool


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> FakeChatRegistry:
    add_families(monkeypatch)
    fake = FakeChatRegistry()
    for model in (fake.speaker, fake.writer):
        model.load_seconds = model.pace = 0.0
    return fake


@pytest.fixture
def service(registry: FakeChatRegistry) -> Iterator[Service]:
    with SessionPool(registry) as pool:  # type: ignore[arg-type]
        yield Service(pool)


@pytest.fixture
def http(service: Service) -> Iterator[TestClient]:
    with TestClient(application(service), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(http: TestClient) -> OpenAI:
    return OpenAI(base_url="http://testserver/v1", api_key="none", http_client=http, max_retries=0)


def error_message(error: Any) -> str:
    """The message of an error of OpenAI's client."""
    return str(error.value.body["message"])
