"""The HTTP client of a remote server: whole answers, parallel streams, and one-line errors for every failure."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.runtimes.vllm.remote.fake_server import (
    CHAT,
    DONE,
    FakeServer,
    Reply,
    as_json,
    chat_events,
    event,
    fake_server,
)
from workbench.core.errors import BadInput, SessionDied, Unavailable, WorkbenchError
from workbench.core.settings import Server
from workbench.runtimes.vllm.remote import client as client_module
from workbench.runtimes.vllm.remote.client import Call, Client

ASK = Call(CHAT, {"messages": ["hello"]})


def stream_items(client: Client, *calls: Call) -> list[tuple[int, dict]]:
    return [item for item in client.stream(calls or [ASK]) if item is not None]


def set_answer(fake: FakeServer, reply: Reply, path: str = CHAT) -> None:
    fake.answers[path] = lambda *_: reply


@contextlib.contextmanager
def listening(reply: bytes | None = None) -> Iterator[Server]:
    """A socket that accepts connections, sends the reply, if any, and closes them."""
    with socket.socket() as socket_:
        socket_.bind(("127.0.0.1", 0))
        socket_.listen(8)
        server = Server(f"http://127.0.0.1:{socket_.getsockname()[1]}", "")

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = socket_.accept()
                    with connection:
                        connection.recv(1 << 16)
                        connection.sendall(reply or b"")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server
        with contextlib.suppress(OSError):
            socket_.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_answers_have_status_and_parsed_json(client: Client, fake: FakeServer) -> None:
    assert client.ask("GET", "/v1/models").content == {"data": [{"id": "org/model"}]}
    responses = client.ask_all([("POST", CHAT, {}), ("POST", "/nothing", {})])
    assert [answer.status for answer in responses] == [400, 404]


def test_a_server_may_be_behind_a_path(server: Server, fake: FakeServer) -> None:
    fake.answers["/models/a/v1/models"] = lambda *_: as_json({"found": True})
    client = Client(Server(f"{server.url}/models/a", ""), "mine")
    assert client.ask("GET", "/v1/models").content == {"found": True}
    client.close()


def test_streams_run_in_parallel(client: Client, fake: FakeServer) -> None:
    """Each answer waits for all eight requests, so sequential requests would never end."""
    barrier = threading.Barrier(8, timeout=60)

    def answer(_: FakeServer, body: dict) -> Reply:
        barrier.wait()
        return Reply(pieces=[event({"number": body["number"]}), DONE])

    fake.answers[CHAT] = answer
    items = stream_items(client, *(Call(CHAT, {"number": number}) for number in range(8)))
    assert sorted(items, key=lambda item: item[0]) == [(number, {"number": number}) for number in range(8)]


def test_threads_share_a_client(client: Client, fake: FakeServer) -> None:
    barrier = threading.Barrier(4, timeout=60)

    def answer(_: FakeServer, body: dict) -> Reply:
        barrier.wait()
        return Reply(pieces=[event(body), DONE])

    fake.answers[CHAT] = answer
    items: dict[int, list] = {}
    threads = [
        threading.Thread(target=lambda n=n: items.update({n: stream_items(client, Call(CHAT, {"n": n}))}))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert items == {n: [(0, {"n": n})] for n in range(4)}


def test_event_split_into_single_bytes_is_reassembled(client: Client, fake: FakeServer) -> None:
    content = b"".join(chat_events([(1, "ü漢")]))
    set_answer(fake, Reply(pieces=[content[i : i + 1] for i in range(len(content))]))
    items = stream_items(client)
    assert [value["choices"][0]["delta"]["content"] for _, value in items[:2]] == ["", "ü漢"]


def test_data_after_the_done_event_is_ignored(client: Client, fake: FakeServer) -> None:
    set_answer(fake, Reply(pieces=[event({"a": 1}), DONE, b"data: no JSON\n\n"]))
    assert stream_items(client) == [(0, {"a": 1})]


def test_a_closed_stream_closes_its_connections(client: Client, fake: FakeServer) -> None:
    set_answer(fake, Reply(pieces=[event({"a": 1})], then="wait"))
    stream = client.stream([ASK, ASK])
    assert [next(stream), next(stream)]
    stream.close()
    assert fake.disconnected.wait(60), "the server notices that the client disconnected"


def test_waiting_stream_yields_none_regularly(client: Client, fake: FakeServer) -> None:
    set_answer(fake, Reply(pieces=[], then="wait"))
    with contextlib.closing(client.stream([ASK])) as stream:
        assert [next(stream), next(stream)] == [None, None]


def test_one_failed_stream_closes_the_other_streams(client: Client, fake: FakeServer) -> None:
    def answer(_: FakeServer, body: dict) -> Reply:
        if body["bad"]:
            fake.waiting.acquire(timeout=60)
            return as_json({"error": {"message": "no", "code": 400}}, 400)
        return Reply(pieces=[event({"a": 1})], then="wait")

    fake.answers[CHAT] = answer
    with pytest.raises(BadInput, match="refuses the request"):
        stream_items(client, Call(CHAT, {"bad": False}), Call(CHAT, {"bad": True}))
    assert fake.disconnected.wait(60)


def test_closing_the_client_ends_running_streams(client: Client, fake: FakeServer) -> None:
    set_answer(fake, Reply(pieces=[event({"a": 1})], then="wait"))
    stream = client.stream([ASK])
    next(stream)
    client.close()
    with pytest.raises(SessionDied, match="was abandoned before its answer was complete"):
        list(stream)
    client.close()


# Unreachable servers.


def test_refused_connection_raises_unavailable_with_advice() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        client = Client(Server(url, ""), "mine")
        for ask in (lambda: client.ask("GET", "/v1/models"), lambda: stream_items(client)):
            with pytest.raises(Unavailable) as caught:
                ask()
            assert str(caught.value) == (
                f"the server {url} of mine cannot be reached: Connection refused; start it there with vllm serve, or "
                "correct the address in the model's card"
            )
        client.close()


def test_unknown_host_raises_unavailable() -> None:
    client = Client(Server("http://nobody.invalid", ""), "mine")
    with pytest.raises(Unavailable, match=r"nobody\.invalid of mine cannot be reached: "):
        client.ask("GET", "/v1/models")
    client.close()


@pytest.mark.parametrize(
    "answer, message",
    [
        (b"", "closed the connection before its answer was complete; the next call asks again"),
        (b"SSH-2.0-OpenSSH\r\n", "closed the connection before its answer was complete"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "closed the connection before its answer was complete"),
    ],
)
def test_server_that_does_not_complete_http_raises_session_died(answer: bytes, message: str) -> None:
    with listening(answer) as server:
        client = Client(server, "mine")
        with pytest.raises(SessionDied, match=message):
            client.ask("GET", "/v1/models")
        with pytest.raises(SessionDied, match=message):
            stream_items(client)
        client.close()


def test_slow_answer_raises_session_died_after_the_time_limit(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ASK_SECONDS", 0.2)
    set_answer(fake, Reply(pieces=[b"{"], then="wait"), "/v1/models")
    with pytest.raises(SessionDied, match=r"needs more than 0\.2 seconds before its answer was complete"):
        client.ask("GET", "/v1/models")


def test_silent_stream_raises_session_died_after_the_time_limit(
    fake: FakeServer, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SILENCE_SECONDS", 0.2)
    set_answer(fake, Reply(pieces=[event({"a": 1})], then="wait"))
    client = Client(server, "mine")
    stream = client.stream([ASK])
    with pytest.raises(SessionDied, match=r"has sent nothing for 0\.2 seconds"):
        list(stream)
    client.close()


# Refusals.


@pytest.mark.parametrize(
    "reply, kind, message",
    [
        (as_json({"error": "Unauthorized"}, 401), Unavailable, r"refuses access \(401: Unauthorized\), and its card"),
        (
            as_json({"error": {"message": "the  audio\nis bad", "code": 400}}, 400),
            BadInput,
            r"\(400\): the audio is bad",
        ),
        (as_json({"detail": "Not Found"}, 404), BadInput, r"refuses the request \(404\): Not Found"),
        (Reply(413, b"<html><body>nginx</body></html>"), BadInput, r"\(413\): .*(Large|Entity)"),
        (Reply(429, b"slow down"), Unavailable, r"takes no more requests now \(429: slow down\); try again later"),
        (Reply(500, b"x" * 5000), WorkbenchError, r"failed \(500\): x{300}\.\.\.$"),
        (Reply(502, b""), WorkbenchError, r"failed \(502\): Bad Gateway"),
        (Reply(307, b"", headers={"Location": "http://elsewhere.invalid"}), WorkbenchError, r"failed \(307\)"),
    ],
)
def test_error_status_raises_one_line_error_with_the_reason_of_the_server(
    client: Client, fake: FakeServer, reply: Reply, kind: type[WorkbenchError], message: str
) -> None:
    set_answer(fake, reply)
    with pytest.raises(kind, match=message) as caught:
        stream_items(client)
    assert "\n" not in str(caught.value) and type(caught.value) is kind


def test_api_key_is_sent_and_a_wrong_or_missing_key_is_reported(
    fake: FakeServer, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.key = "secret"
    locked = Server(server.url, "", "FAR_KEY")
    monkeypatch.setenv("FAR_KEY", " secret\n")
    client = Client(locked, "mine")
    assert client.ask("GET", "/v1/models").status == 200
    client.close()
    monkeypatch.setenv("FAR_KEY", "another")
    client = Client(locked, "mine")
    with pytest.raises(Unavailable, match="the key in FAR_KEY is not one that it takes") as caught:
        stream_items(client)
    assert "another" not in str(caught.value)
    client.close()
    for value in ("", "sécret", "a\nb"):
        monkeypatch.setenv("FAR_KEY", value)
        with pytest.raises(Unavailable, match="FAR_KEY"):
            Client(locked, "mine")


# Broken streams.


@pytest.mark.parametrize("then", ["drop", "end"])
def test_broken_stream_yields_received_events_and_raises_session_died(
    client: Client, fake: FakeServer, then: str
) -> None:
    set_answer(fake, Reply(pieces=[event({"a": 1}), b'data: {"b": '], then=then))
    stream = client.stream([ASK])
    assert next(item for item in stream if item) == (0, {"a": 1}), "received events are yielded"
    with pytest.raises(SessionDied, match="before its answer was complete; the next call asks again"):
        list(stream)
    set_answer(fake, Reply(pieces=[event({"a": 2}), DONE]))
    assert stream_items(client) == [(0, {"a": 2})]


@pytest.mark.parametrize(
    "piece, kind, message",
    [
        (b"data: {no\n\n", WorkbenchError, r"with an event that is not JSON \(\{no\); expected an OpenAI-compatible"),
        (b"data: 5\n\n", WorkbenchError, r"with an event that is not a JSON object \(5\)"),
        (b"data: " + b"[" * 100_000 + b"\n\n", WorkbenchError, r"with an event that is not JSON"),
        (
            event({"error": {"message": "the engine died", "code": 500}}),
            SessionDied,
            "the engine died; the answer is incomplete",
        ),
        (event({"error": {"message": "too long", "code": 400}}), BadInput, r"\(400\): too long"),
        (event({"error": "odd"}), SessionDied, r"failed \(500\): odd; the answer is incomplete"),
    ],
)
def test_invalid_event_raises_an_error(
    client: Client, fake: FakeServer, piece: bytes, kind: type[WorkbenchError], message: str
) -> None:
    set_answer(fake, Reply(pieces=[piece, DONE]))
    with pytest.raises(kind, match=message) as caught:
        stream_items(client)
    assert type(caught.value) is kind


def test_answers_and_streams_above_the_size_limit_are_refused(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 1000)
    monkeypatch.setattr(client_module, "MAX_STREAM_BYTES", 1000)
    set_answer(fake, Reply(body=b" " * 2000), "/v1/models")
    with pytest.raises(WorkbenchError, match="answers with more than 0 MB"):
        client.ask("GET", "/v1/models")
    bomb = gzip.compress(b" " * 10_000_000)
    set_answer(fake, Reply(body=bomb, headers={"Content-Encoding": "gzip"}), "/v1/models")
    with pytest.raises(WorkbenchError, match="answers with more than 0 MB"):
        client.ask("GET", "/v1/models")
    set_answer(fake, Reply(pieces=[event({"a": "b" * 300})] * 5))
    with pytest.raises(WorkbenchError, match="with a stream of more than"):
        stream_items(client)


def test_invalid_gzip_answer_raises_an_error(client: Client, fake: FakeServer) -> None:
    set_answer(fake, Reply(body=b"{}", headers={"Content-Encoding": "gzip"}), "/v1/models")
    with pytest.raises(WorkbenchError, match="with bytes that cannot be decompressed"):
        client.ask("GET", "/v1/models")


def test_answer_that_is_not_json_raises_an_error(client: Client, fake: FakeServer) -> None:
    set_answer(fake, Reply(body=b"<html>a login page</html>"), "/v1/models")
    with pytest.raises(
        WorkbenchError, match=r"/v1/models with no JSON \(<html>a login page</html>\); expected an Open"
    ):
        client.ask("GET", "/v1/models")


def test_client_reconnects_to_a_restarted_server() -> None:
    with fake_server() as (_, server):
        client = Client(server, "mine")
        assert stream_items(client)
        port = int(server.url.rsplit(":", 1)[1])
    with pytest.raises(WorkbenchError, match="server"):
        stream_items(client)
    with fake_server(port):
        assert stream_items(client)
    client.close()
