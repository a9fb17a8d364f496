"""An OpenAI-compatible server on a free port, with answers that a test sets."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workbench.core.settings import Server

MODEL = "org/model"
END = 9  # the id of the token that ends a turn
CHAT, COMPLETIONS, TRANSCRIPTIONS = "/v1/chat/completions", "/v1/completions", "/v1/audio/transcriptions"


@dataclass(frozen=True)
class Reply:
    """An answer: a complete body, or pieces of a body that are sent one by one."""

    status: int = 200
    body: bytes = b""
    pieces: Sequence[bytes] | None = None
    then: str = "end"  # after the pieces: end regularly, drop the connection, or wait until the client disconnects
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(value: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), headers={"Content-Type": "application/json"})


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def chat_events(
    tokens: Sequence[tuple[int, str]], finish: str = "stop", prompt: int = 5, end: int | None = END
) -> list[bytes]:
    """A chat as vLLM streams it: an event with role and prompt, one event for each token, and the usage."""
    role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    events = [event({"choices": [role], "prompt_token_ids": [7] * prompt})]
    for number, text in tokens:
        events.append(event({"choices": [{"index": 0, "delta": {"content": text}, "token_ids": [number]}]}))
    ids = [end] if finish == "stop" and end is not None else []
    last = {"index": 0, "delta": {"content": ""}, "token_ids": ids, "finish_reason": finish}
    return [*events, event({"choices": [last]}), event({"choices": [], "usage": {"prompt_tokens": prompt}}), DONE]


DONE = event(b"[DONE]")
Answering = Callable[["FakeServer", Any], Reply]


class FakeServer:
    """Records requests and answers them; tests change `answers` by path, or `models`, `key` and `tokens`."""

    def __init__(self) -> None:
        self.models = [MODEL]
        self.key = ""
        self.tokens = {1: "one", 2: " two", END: "<|im_end|>"}
        self.requests: list[tuple[str, Any]] = []  # path and body
        self.headers: list[Mapping[str, str]] = []
        self.disconnected = threading.Event()  # set when a client disconnects during a stream
        self.waiting = threading.Semaphore(0)  # released for each stream that waits for its client to disconnect
        self.answers: dict[str, Answering] = {
            "/v1/models": lambda server, _: as_json({"data": [{"id": name} for name in server.models]}),
            "/tokenize": FakeServer.tokenize,
            "/detokenize": FakeServer.detokenize,
            CHAT: lambda *_: Reply(pieces=chat_events([(1, "one"), (2, " two")])),
            COMPLETIONS: lambda *_: Reply(pieces=COMPLETED),
        }

    def tokenize(self, body: Any) -> Reply:
        return as_json({"tokens": [END] if body.get("prompt") == "<|im_end|>" else [1, 2]})

    def detokenize(self, body: Any) -> Reply:
        [number] = body["tokens"]
        return as_json({"prompt": self.tokens[number]})

    def reply(self, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        if body != {}:  # an empty body only probes for a route
            self.requests.append((path, body))
            self.headers.append(headers)
        if self.key and path.startswith("/v1") and headers.get("Authorization") != f"Bearer {self.key}":
            return as_json({"error": "Unauthorized"}, 401)
        if path not in self.answers:
            return as_json({"detail": "Not Found"}, 404)
        if body == {}:
            return as_json({"error": {"message": "nothing is asked", "type": "BadRequestError", "code": 400}}, 400)
        return self.answers[path](self, body)


COMPLETED = [
    event({"choices": [{"index": 0, "text": "one", "token_ids": [1], "prompt_token_ids": [7, 7, 7]}]}),
    event({"choices": [{"index": 0, "text": " two", "token_ids": [2], "finish_reason": "length"}]}),
    event({"choices": [], "usage": {"prompt_tokens": 3}}),
    DONE,
]


@contextmanager
def fake_server(port: int = 0) -> Iterator[tuple[FakeServer, Server]]:
    """Yields the server and its address, and stops it after the block."""
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(fake.reply(self.path, None, self.headers))

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            form = self.headers["Content-Type"].startswith("multipart/")
            self.answer(fake.reply(self.path, content if form else json.loads(content), self.headers))

        def answer(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.pieces is None:
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for piece in reply.pieces:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                if reply.then == "wait":
                    fake.waiting.release()
                    self.connection.recv(1)  # returns nothing when the client closes the connection
            except OSError:
                pass
            if reply.then == "wait":
                fake.disconnected.set()
            if reply.then == "end":
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    connections: list[socket.socket] = []

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def process_request(self, request: Any, address: Any) -> None:
            connections.append(request)
            super().process_request(request, address)

        def handle_error(self, *_: object) -> None:
            pass  # a client has disconnected

    server = Quiet(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield fake, Server(f"http://127.0.0.1:{server.server_port}", "")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        for connection in connections:  # connections kept alive for a next request
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
