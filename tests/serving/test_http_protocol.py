"""The connections of a server: headers that are too large or too slow, chunks and frames that are too many, and those
that are none of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.waits import until
from workbench.serving import http_protocol, unread_answers
from workbench.serving.http_protocol import MAX_SMALL_CHUNKS, BoundedHttpProtocol

LONG = 0.6  # seconds; longer than a header may take in these tests
ANSWER_BYTES = 48 << 20  # more than the system keeps for a connection
UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
BEGINNING = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[uvicorn.Server]:
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

    async def count(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    async def long(request: Request) -> PlainTextResponse:
        return PlainTextResponse(b"x" * ANSWER_BYTES)

    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            for _ in range(ANSWER_BYTES >> 20):
                await websocket.send_bytes(b"x" * (1 << 20))

    routes = [
        Route("/", slow),
        Route("/count", count, methods=["POST"]),
        Route("/long", long),
        WebSocketRoute("/talk", talk),
        WebSocketRoute("/echo", echo),
        WebSocketRoute("/no", refuse),
    ]
    app = Starlette(routes=routes)
    settings = {"ws_ping_interval": LONG / 4, "ws_ping_timeout": LONG / 4, "log_level": "warning"}
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=BoundedHttpProtocol, **settings))  # type: ignore[arg-type]
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            until(lambda: server.started)
            yield server
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def port(server: uvicorn.Server) -> int:
    return int(server.servers[0].sockets[0].getsockname()[1])


def reply_to(port: int, *pieces: bytes) -> bytes:
    """Returns all that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        return received_after(connection, pieces)


def received_after(connection: socket.socket, pieces: Sequence[bytes]) -> bytes:
    """Sends the pieces; returns what comes until the server closes the connection."""
    found = b""
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


def chunked(port: int, *pieces: bytes) -> bytes:
    beginning = b"POST /count HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    return reply_to(port, beginning, *pieces)


def test_body_of_too_many_small_chunks_is_refused(port: int) -> None:
    small, large, end = b"1\r\nx\r\n", b"400\r\n" + b"x" * 1024 + b"\r\n", b"0\r\n\r\n"
    few, many = MAX_SMALL_CHUNKS // 2, MAX_SMALL_CHUNKS + 1
    assert chunked(port, few * small, 2 * few * large, end).endswith(str(few + 2 * few * 1024).encode())
    assert chunked(port, small * many, end).startswith(b"HTTP/1.1 400")


def test_invalid_chunk_after_the_answer_leaves_no_error_in_the_log(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert b"404 Not Found" in connection.recv(1 << 16)
        connection.sendall(b"no number\r\n")
        assert connection.recv(1 << 16) == b""
    assert not [each for each in caplog.records if each.levelname != "WARNING"]


@pytest.mark.parametrize(("target", "rest"), [(b"/long", b"Connection: close\r\n\r\n"), (b"/talk", UPGRADE)])
def test_connection_ends_if_its_client_does_not_read(
    server: uvicorn.Server,
    port: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    target: bytes,
    rest: bytes,
) -> None:
    monkeypatch.setattr(unread_answers, "ANSWER_SECONDS", LONG)
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n" + rest)
        assert connection.recv(1)
        until(lambda: not server.server_state.connections)
    assert not caplog.records


def test_client_that_reads_slowly_gets_the_whole_answer(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_answers, "ANSWER_SECONDS", LONG)
    start, received = time.monotonic(), 0
    with httpx.Client() as client, client.stream("GET", f"http://127.0.0.1:{port}/long") as answer:
        for piece in answer.iter_bytes(1 << 20):
            received += len(piece)
            time.sleep(LONG / 20)
    assert received == ANSWER_BYTES and time.monotonic() - start > 2 * LONG


MASK = bytes(4)
PING, SMALL, LARGE = b"\x89\x80" + MASK, b"\x00\x81" + MASK + b"a", b"\x00\xfe\x02\x00" + MASK + b"a" * 512
BEGIN, END = b"\x01\x80" + MASK, b"\x80\x80" + MASK  # of a text in pieces


def frames(port: int, *pieces: bytes) -> bytes:
    """Returns what a websocket that echoes one message sends after the handshake, until its end."""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(b"GET /echo HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE)
        assert b"101 Switching" in connection.recv(1 << 16)
        return received_after(connection, pieces)


@pytest.mark.parametrize("flood", [PING * 400, BEGIN + SMALL * 400])
def test_too_many_frames_without_a_message_end_a_websocket(port: int, flood: bytes) -> None:
    assert b"too many pings" in frames(port, flood, flood)


@pytest.mark.parametrize("harmless", [PING * 20 + BEGIN + SMALL + END, BEGIN + LARGE * 400 + END])
def test_few_pings_and_pieces_are_allowed(port: int, harmless: bytes) -> None:
    assert frames(port, harmless).endswith(b"a" * harmless.count(b"a"))


def test_invalid_text_ends_a_websocket_and_leaves_no_error_in_the_log(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert b"not UTF-8" in frames(port, b"\x81\x81" + MASK + b"\xff")
    assert b"not UTF-8" in frames(port, b"\x01\x81" + MASK + b"\xc3" + END)
    assert not caplog.records


def test_client_that_answers_no_ping_loses_its_connection_unless_the_server_does_not_read(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}/echo", ping_interval=None) as client:
        client.send("hello")  # the next message is read when the application asks for it
        assert client.recv(timeout=20) == "hello"
    assert b"keepalive ping timeout" in frames(port)


@pytest.mark.parametrize(
    ("target", "header", "status"),
    [
        (b"/echo", b"Sec-WebSocket-Protocol: " + b"a," * 5000 + b"\r\n", b"431"),
        (b"/echo", b"x-many: 1\r\n" * 200, b"431"),
        (b"/echo?" + b"x" * 9000, b"", b"414"),
    ],
)
def test_handshake_with_a_header_too_large_is_refused_and_closed(
    port: int, caplog: pytest.LogCaptureFixture, target: bytes, header: bytes, status: bytes
) -> None:
    reply = reply_to(port, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n" + header + UPGRADE)
    assert reply.startswith(b"HTTP/1.1 " + status) and not caplog.records


def test_refused_websocket_gets_the_body_and_leaves_no_error_in_the_log(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidStatus) as caught, connect(f"ws://127.0.0.1:{port}/no", proxy=None):
        pass
    assert caught.value.response.status_code == 404 and caught.value.response.body == b"no"
    assert not caplog.records
