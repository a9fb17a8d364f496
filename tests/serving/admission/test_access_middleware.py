"""The access middleware's checks of requests: hosts, origins, keys, rates, body sizes and slow bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.support.coroutines import finished
from workbench.openai_api.errors import Refusal
from workbench.serving.admission import access_middleware, refusals
from workbench.serving.admission.access_middleware import AccessMiddleware
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.keys import Keys
from workbench.serving.admission.limits import PUBLIC


@contextmanager
def client_behind(guard: Guard, **options: Any) -> Iterator[TestClient]:
    """A client of the access middleware alone, before an application that answers "yes"."""

    async def yes(request: Any) -> PlainTextResponse:
        return PlainTextResponse(f"yes{len(await request.body()) or ''}")

    async def accept(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    every = [Route("/{path:path}", yes, methods=["GET", "POST", "OPTIONS"]), WebSocketRoute("/{path:path}", accept)]
    app = Starlette(routes=every)
    yield TestClient(AccessMiddleware(app, guard, **options), base_url="http://localhost:7860")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host, status", [("localhost:7860", 200), ("127.0.0.1", 200), ("evil.example:7860", 421), ("mine.example", 200)]
)
def test_unknown_host_names_are_refused(host: str, status: int) -> None:
    with client_behind(Guard(), hosts=["mine.example"]) as client:
        assert client.get("/", headers={"host": host}).status_code == status
        answer = client.post("/", headers={"host": host, "origin": f"http://{host}"})
        assert answer.status_code == status


def test_probe_without_a_host_name_is_answered_and_a_page_is_not() -> None:
    with client_behind(Guard()) as client:
        assert client.get("/health", headers={"host": ""}).status_code == 200
        for origin in ("http://", "https://evil.example"):
            assert client.post("/x", headers={"host": "", "origin": origin}).status_code == 403


def test_requests_beyond_the_rate_limit_get_429_with_retry_after() -> None:
    guard = Guard("public", replace(PUBLIC, requests_per_minute=3))
    with client_behind(guard) as client:
        answers = [client.post("/v1/chat/completions", json={}) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1].headers["retry-after"]) > 0 and "try again" in answers[-1].json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/login"),
        ("GET", "/"),
        ("GET", "/config"),
        ("GET", "/gradio_api/info"),
        ("GET", "/visualise/file/x/0.png"),
    ],
)
def test_sign_in_attempts_and_costly_addresses_count_as_requests(method: str, path: str) -> None:
    with client_behind(Guard("public", replace(PUBLIC, requests_per_minute=2))) as client:
        statuses = []
        for _ in range(3):
            client.cookies.clear()  # the page would set one, and begin a new count
            statuses.append(client.request(method, path).status_code)
        assert statuses == [200, 200, 429]
        assert client.get("/health").status_code == 200


def test_browsers_behind_one_address_have_separate_rate_limits() -> None:
    with client_behind(Guard("public", replace(PUBLIC, requests_per_minute=2, per_address=3))) as client:
        set_cookie = client.get("/").headers["set-cookie"]
        assert "HttpOnly" in set_cookie
        first_cookie = set_cookie.partition(";")[0]
        second_cookie = f"workbench-visitor={'x' * 22}"
        client.cookies.clear()
        statuses = [
            client.post("/v1/x", headers={"cookie": cookie}).status_code
            for cookie in (first_cookie, first_cookie, first_cookie, second_cookie)
        ]
        assert statuses == [200, 200, 429, 200]
        assert [client.post("/v1/x", headers={"cookie": second_cookie}).status_code for _ in range(2)] == [200, 429]


def test_keys_open_the_routes_and_allow_named_origins(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    key = keys.add("notebook")
    assert key not in (tmp_path / "keys.json").read_text() and (tmp_path / "keys.json").stat().st_mode & 0o077 == 0
    with client_behind(Guard("public"), keys=keys, origins=["https://example.org"]) as client:
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"authorization": f"Bearer {key}"}).text == "yes"
        assert client.get("/health").text == "yes"
        headers = {"origin": "https://example.org", "authorization": f"Bearer {key}"}
        assert client.post("/v1/x", headers=headers).headers["access-control-allow-origin"] == "https://example.org"
        keys.remove("notebook")
        keys.add("another")
        assert client.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 401


def test_proxy_root_path_does_not_bypass_the_checks(tmp_path: Path) -> None:
    """With `--root-path`, a server gets that path before each route."""
    keys = Keys(tmp_path / "keys.json")
    key = keys.add("notebook")
    guard = Guard("public", replace(PUBLIC, requests_per_minute=2))
    with client_behind(guard, keys=keys) as client:
        client._transport.root_path = "/sub"
        for path in ("/v1/models", "/sub/v1/models", "/sub/metrics"):
            assert client.get(path).status_code == 401
        headers = {"authorization": f"bearer {key}"}  # a scheme in any case
        assert [client.post("/sub/v1/x", headers=headers).status_code for _ in range(3)] == [200, 200, 429]
        assert "sandbox" in client.get("/sub/gradio_api/file=x.html").headers["content-security-policy"]
        assert client.get("/subway").status_code == 200  # another route that only begins with the same letters


def test_page_with_passwords_requires_sign_in_on_each_route() -> None:
    with client_behind(Guard("public"), signed_in=lambda scope: False) as client:
        for path in ("/chat/x", "/evaluate/report/x", "/gradio_api/info", "/live/listen", "/timeline/x"):
            assert client.get(path).status_code == 401
        assert client.post("/gradio_api/upload").status_code == 401
        assert client.get("/").status_code == 200  # the page where visitors sign in


def test_live_routes_require_a_key_only_on_a_server_without_a_page(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    keys.add("notebook")
    with client_behind(Guard("public"), keys=keys, page=False) as client:
        assert client.get("/live/listen").status_code == 401
    with client_behind(Guard("public"), keys=keys) as client:
        assert client.get("/live/listen").status_code == 200  # visitors of the page have no key


def test_path_with_a_line_end_does_not_bypass_the_upload_limit() -> None:
    with client_behind(Guard("public", replace(PUBLIC, uploads_per_hour=1))) as client:
        assert [client.post("/mcp/files").status_code for _ in range(2)] == [200, 429]
        assert client.post("/mcp/files%0A").status_code == 404


def test_websockets_count_as_requests() -> None:
    with client_behind(Guard("public", replace(PUBLIC, requests_per_minute=2))) as client:
        for _ in range(2):
            with client.websocket_connect("/v1/realtime"):
                pass
        for path in ("/v1/realtime", "/live/listen"):
            with client.websocket_connect(path) as socket:
                event = socket.receive_json()
                ending = socket.receive()
            sentence = event["error"]["message"] if event["type"] == "error" else event["sentence"]
            assert "try again" in sentence and sentence.startswith(ending["reason"][:80]) and ending["code"] == 1013


def test_websocket_without_a_key_gets_an_event_with_the_reason(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    keys.add("notebook")
    with (
        client_behind(Guard(), keys=keys) as client,
        client.websocket_connect("/v1/realtime", headers=LOCALHOST) as socket,
    ):
        event, ending = socket.receive_json(), socket.receive()
    assert event["type"] == "error" and event["event_id"] and event["error"]["code"] == "invalid_api_key"
    assert ending["code"] == 3000 and 0 < len(ending["reason"].encode()) <= 123


def test_first_key_holds_for_a_server_that_runs(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    with client_behind(Guard(), keys=keys) as client:
        assert client.get("/v1/models").status_code == 200
        key = Keys(tmp_path / "keys.json").add("notebook")
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 200


def test_unreadable_keys_refuse_requests_without_the_path_of_their_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with client_behind(Guard(), keys=Keys(tmp_path / "keys.json")) as client:
        (tmp_path / "keys.json").write_text("damaged")
        answer = client.get("/v1/models", headers={"authorization": "Bearer key"})
        assert client.get("/health").status_code == 200
    assert answer.status_code == 503 and str(tmp_path) not in answer.text
    assert str(tmp_path) in caplog.text


@pytest.mark.parametrize(("right", "code"), [(True, 1000), (False, 3000)])
def test_key_of_a_browser_comes_as_a_subprotocol(tmp_path: Path, right: bool, code: int) -> None:
    keys = Keys(tmp_path / "keys.json")
    key = keys.add("browser")
    names = ["realtime", f"openai-insecure-api-key.{key if right else 'wrong'}"]
    with (
        client_behind(Guard(), keys=keys) as client,
        client.websocket_connect("/v1/realtime", names, headers={**LOCALHOST}) as socket,
    ):
        if not right:
            assert socket.accepted_subprotocol == "realtime", "a browser would not show the reason otherwise"
            assert socket.receive_json()["error"]["code"] == "invalid_api_key"
        assert socket.receive()["code"] == code


def test_websocket_that_must_not_be_accepted_gets_the_reason_with_a_status() -> None:
    with client_behind(Guard()) as client:
        for path, headers, status, sentence in (
            ("/v1/realtime", {"origin": "https://evil.example", **LOCALHOST}, 403, "another site"),
            ("/v1/realtime", {"host": "evil.example"}, 421, "does not know the name"),
            ("/live/listen", {"host": "evil.example"}, 421, "does not know the name"),
        ):
            with pytest.raises(WebSocketDenialResponse) as caught, client.websocket_connect(path, headers=headers):
                pass
            assert caught.value.status_code == status and sentence in str(caught.value.json()["error"])


def test_refused_websocket_that_does_not_read_is_left_soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(refusals, "TELLING_SECONDS", 0.05)
    keys = Keys(tmp_path / "keys.json")
    keys.add("notebook")

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send":
            await asyncio.sleep(60)  # the buffers are full

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the application must not see it")

    scope = {"type": "websocket", "path": "/v1/realtime", "headers": [(b"host", b"localhost")]}
    finished(asyncio.wait_for(AccessMiddleware(app, Guard(), keys=keys)(scope, receive, send), 30))


SITE = "https://example.org"
LOCALHOST = {"host": "localhost"}


def test_requests_from_other_origins_are_refused_unless_named(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    credentials = {"authorization": f"Bearer {keys.add('site')}"}
    with client_behind(Guard(), origins=[SITE], keys=keys) as client:
        evil = {"origin": "https://evil.example"}
        assert client.post("/v1/x", headers={**evil, **credentials}).status_code == 403
        assert "access-control-allow-origin" not in client.get("/v1/x", headers={**evil, **credentials}).headers
        with (
            pytest.raises(WebSocketDisconnect),
            client.websocket_connect("/chat/live", headers={**evil, **LOCALHOST}),
        ):
            pass
        with client.websocket_connect("/live/listen", headers={"origin": SITE, **LOCALHOST}):
            pass
        answer = client.post("/v1/x", headers={"origin": SITE, **credentials})
        assert answer.text == "yes" and answer.headers["access-control-allow-origin"] == SITE
        no_key = client.post("/v1/x", headers={"origin": SITE})  # the page can read the reason of the refusal
        assert no_key.status_code == 401 and no_key.headers["access-control-allow-origin"] == SITE


def test_cors_preflight_is_answered_for_named_origins_only(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    keys.add("site")
    preflight = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
        "access-control-request-private-network": "true",
    }
    with client_behind(Guard(), origins=[SITE], keys=keys) as client:
        allowed = client.options("/v1/chat/completions", headers={"origin": SITE, **preflight})
        assert allowed.status_code == 204 and allowed.headers["access-control-allow-origin"] == SITE
        assert allowed.headers["access-control-allow-headers"] == "authorization, content-type"
        assert "POST" in allowed.headers["access-control-allow-methods"]
        assert allowed.headers["access-control-allow-private-network"] == "true"
        refused = client.options("/v1/chat/completions", headers={"origin": "https://evil.example", **preflight})
        assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers


def test_only_upload_routes_accept_bodies_of_file_size() -> None:
    form = {"content-type": "multipart/form-data; boundary=b"}
    with client_behind(Guard("public", replace(PUBLIC, body_mb=1, file_mb=2))) as client:
        for path, status in (("/v1/completions", 413), ("/v1/audio/transcriptions", 200), ("/gradio_api/upload", 200)):
            assert client.post(path, content=bytes(3 << 19), headers=form).status_code == status


def test_a_body_of_unstated_length_is_refused_where_it_grows_too_large() -> None:
    """Inside an application, as in the page, whose own routes do not handle this refusal."""

    async def body_size(request: Any) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    guard = Guard("public", replace(PUBLIC, body_mb=1, file_mb=2))
    inside = [Middleware(AccessMiddleware, guard=guard)]
    client = TestClient(
        Starlette(routes=[Route("/x", body_size, methods=["POST"])], middleware=inside), "http://localhost"
    )
    refused = client.post("/x", content=iter([bytes(1 << 19)] * 3))  # in chunks
    assert "content-length" not in refused.request.headers
    assert refused.status_code == 413 and "more than 1 MB" in refused.json()["error"]
    assert client.post("/x", content=iter([bytes(1 << 19)] * 2)).text == str(1 << 20)


def test_no_error_response_follows_a_response_that_has_begun() -> None:
    outgoing: list[Any] = []

    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise Refusal("too late", status=413)

    async def send(message: Any) -> None:
        outgoing.append(message["type"])

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", b"localhost:7860")]
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": headers, "client": ("127.0.0.1", 1)}
    with pytest.raises(Refusal, match="too late"):
        finished(AccessMiddleware(breaks, Guard())(scope, receive, send))  # type: ignore[arg-type]
    assert outgoing == ["http.response.start"]


@pytest.mark.parametrize("begun", [False, True])
def test_request_that_the_end_of_the_server_cancels_gets_status_503(begun: bool) -> None:
    outgoing: list[Any] = []

    async def works(scope: Any, receive: Any, send: Any) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        outgoing.append(message)

    async def end() -> None:
        headers = [(b"host", b"localhost:7860")]
        scope = {"type": "http", "method": "GET", "path": "/v1/x", "headers": headers, "client": ("127.0.0.1", 1)}
        answering = asyncio.ensure_future(AccessMiddleware(works, Guard())(scope, asyncio.Event().wait, send))  # type: ignore[arg-type]
        await asyncio.sleep(0.1)
        answering.cancel()
        await answering  # without an error, which would go to the log

    finished(end())
    assert outgoing[0]["status"] == (200 if begun else 503) and len(outgoing) == (1 if begun else 2)


def test_slowly_sent_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece comes in time, but the full body comes too slowly."""
    monkeypatch.setattr(access_middleware, "BODY_SECONDS", 0.3)
    pieces = iter(range(1000))

    async def receive() -> dict[str, Any]:
        next(pieces)
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"x", "more_body": True}

    body = access_middleware._Body(receive, 1 << 20)  # type: ignore[arg-type]

    async def read() -> None:
        while True:
            await body()

    with pytest.raises(Refusal, match="too slowly"):
        finished(read())
    assert next(pieces) < 20
