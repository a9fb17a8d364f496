"""The size limit of request bodies in front of a server: larger bodies are refused before they are read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, HTTPException, Request

from tests.support.coroutines import finished
from workbench.embeddings import LIMIT
from workbench.embeddings.payload import as_base64
from workbench.runtimes.vllm.body import MAX_BODY, LimitedBody

LIMIT_BYTES = 1000
MESSAGE = "the request has more than 1 kB, the most that this server reads; expected less"


def app() -> FastAPI:
    """An application that reads complete bodies, as vLLM's does."""
    application = FastAPI()
    application.state.read = []

    @application.post("/length")
    async def length(request: Request) -> int:
        try:
            body = await request.body()
        except Exception as error:
            raise HTTPException(400, "There was an error parsing the body") from error
        application.state.read.append(len(body))
        return len(body)

    application.add_middleware(LimitedBody, maximum=LIMIT_BYTES)
    return application


@contextlib.contextmanager
def serving(application: FastAPI) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error"))
    started = threading.Event()
    main = server.startup

    async def startup(*arguments: Any, **options: Any) -> None:
        await main(*arguments, **options)
        started.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(60)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def in_chunks(count: int) -> Iterator[bytes]:
    for _ in range(10):
        yield bytes(count // 10)


@pytest.mark.parametrize("form", [bytes, in_chunks])
def test_body_above_the_limit_returns_413_with_a_message_before_it_is_read(form: Callable[[int], Any]) -> None:
    application = app()
    with serving(application) as url, httpx.Client(trust_env=False, base_url=url) as client:
        assert client.post("/length", content=form(LIMIT_BYTES)).json() == LIMIT_BYTES
        for count in (LIMIT_BYTES + 100, 50_000_000):
            response = client.post("/length", content=form(count))
            assert (response.status_code, response.json()["error"]["message"]) == (413, MESSAGE)
            assert response.json()["error"]["code"] == 413
        assert client.post("/length", content=form(300)).json() == 300
    assert application.state.read == [LIMIT_BYTES, 300]


def test_the_largest_embedding_fits() -> None:
    assert len(as_base64(bytes(300_000))) * (LIMIT // 300_000) < MAX_BODY < LIMIT * 1.4


def test_other_errors_of_the_application_are_passed_on() -> None:
    async def raise_error(*_: Any) -> None:
        raise RuntimeError("of its own")

    async def unused(*_: Any) -> Any:
        raise AssertionError

    for kind in ("http", "websocket"):
        with pytest.raises(RuntimeError, match="of its own"):
            finished(LimitedBody(raise_error)({"type": kind, "headers": []}, unused, unused))
