"""The connections of a server: headers that are too large or too slow, and those that are neither."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.waits import until
from workbench.serving import http_protocol
from workbench.serving.http_protocol import BoundedHttpProtocol

LONG = 0.6  # seconds; longer than a header may take in these tests
BEGINNING = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(http_protocol, "HEADER_SECONDS", LONG / 2)

    async def slow(request: object) -> PlainTextResponse:
        await asyncio.sleep(LONG)
        return PlainTextResponse("yes")

    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        await asyncio.sleep(LONG)
        await websocket.send_text(await websocket.receive_text())

    async def refuse(websocket: WebSocket) -> None:
        await websocket.send_denial_response(PlainTextResponse("no", 404))

    routes = [Route("/", slow), WebSocketRoute("/echo", echo), WebSocketRoute("/no", refuse)]
    app = Starlette(routes=routes)
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=BoundedHttpProtocol, log_level="error"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            until(lambda: server.started)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)


def reply_to(port: int, *pieces: bytes) -> bytes:
    """Returns all that the server sends until it closes the connection."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            while received := connection.recv(1 << 16):
                found += received
        except ConnectionError:  # closed while there was more to read
            pass
    return found


def test_endless_header_is_refused(port: int) -> None:
    megabyte = b"x" * (1 << 20)
    for beginning in (BEGINNING + b"x-long: ", b"GET /?"):
        assert b"200 OK" not in reply_to(port, beginning, megabyte, megabyte)
    many = b"x-many: 1\r\n" * (3 << 17)
    assert b"200 OK" not in reply_to(port, BEGINNING, many, b"\r\n")


@pytest.mark.parametrize("beginning", [b"", b"GET", BEGINNING + b"x-slow: "])
def test_connection_without_a_complete_header_is_closed(port: int, beginning: bytes) -> None:
    assert reply_to(port, beginning) == b""


@pytest.mark.parametrize("target", [b"/", b"http://localhost/", b"HTTP://localhost", b"http://localhost:80?a=/b"])
def test_target_with_the_name_of_the_server_means_its_path(port: int, target: bytes) -> None:
    reply = reply_to(port, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200 OK") and reply.endswith(b"yes")


def test_complete_request_may_take_longer_than_a_header(port: int) -> None:
    with httpx.Client() as client:
        assert [client.get(f"http://127.0.0.1:{port}/").text for _ in range(2)] == ["yes", "yes"]
    with connect(f"ws://127.0.0.1:{port}/echo") as client:
        client.send("hello")
        assert client.recv(timeout=20) == "hello"
        assert not client.protocol.extensions, "a compressed message can be a thousand times as large as what came"


def test_refused_websocket_gets_the_body_and_leaves_no_error_in_the_log(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidStatus) as caught, connect(f"ws://127.0.0.1:{port}/no", proxy=None):
        pass
    assert caught.value.response.status_code == 404 and caught.value.response.body == b"no"
    assert not caplog.records
