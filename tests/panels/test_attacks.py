"""Attacks on the public page: each is refused with a one-line error, and the server stays available.

docs/security.md names the line that each test shows.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import socket
import threading
import zipfile
from asyncio import Queue as AsyncQueue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from gradio.server_messages import HeartbeatMessage
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from panels.chat import routes as chat_routes
from panels.running import leaving
from panels.running.call_status import with_fitting_status
from panels.running.error_boundary import page_error
from panels.running.json_bodies import JsonBodies
from panels.running.sessions import SessionPool
from panels.running.uploads import PATH as UPLOAD
from panels.serving import UPLOADS
from tests.panels.conftest import Served, serve
from tests.support.coroutines import finished
from tests.support.fake_panels import FakeRegistry
from tests.support.waits import until
from workbench.core.errors import BadInput, Busy, Cancelled, WorkbenchError
from workbench.core.visitors import Work, working
from workbench.serving import kept_files
from workbench.serving.admission import access_middleware
from workbench.serving.admission.guard import Guard, Rate
from workbench.serving.admission.limits import PUBLIC
from workbench.serving.comparison import compare_in_separate_process
from workbench.system.memory import resident_bytes

LIMITS = replace(
    PUBLIC,
    file_mb=1,
    body_mb=1,
    disk_mb_per_visitor=1,
    arrays_mb=8,
    requests_per_minute=10_000,
    uploads_per_hour=10_000,
)
SAMPLE = next(Path("assets/samples").glob("*.wav"))
META = {"_type": "gradio.FileData"}


@pytest.fixture(scope="module")
def uploads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uploads")


@pytest.fixture(scope="module")
def public(uploads: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UPLOADS, str(uploads))
        yield from serve(SessionPool(FakeRegistry(), guard=Guard("public", LIMITS)))  # type: ignore[arg-type]


@pytest.fixture
def client(public: Served, uploads: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setenv(UPLOADS, str(uploads))  # each test has another folder
    public.registry.gate.set()
    with httpx.Client(base_url=public.url, timeout=60) as client:
        yield client
        assert client.get("/health").json()["status"] == "ok"  # the page is alive


def upload(client: httpx.Client, content: bytes, name: str = "a.wav") -> httpx.Response:
    return client.post(UPLOAD, files={"files": (name, content)})


def files_in(uploads: Path) -> set[Path]:
    """All files that visitors have on the server."""
    return {Path(place) / name for place, _, names in os.walk(uploads) for name in names}


def call(client: httpx.Client, name: str, *values: Any) -> str:
    """Returns the last event of an endpoint's call as text, or the response to a call that the server refuses."""
    response = client.post(f"/gradio_api/call/{name}", json={"data": list(values)})
    if response.status_code != 200:
        return response.text
    with client.stream("GET", f"/gradio_api/call/{name}/{response.json()['event_id']}") as events:
        return events.read().decode().rpartition("event:")[2]


def transcribe(
    client: httpx.Client, file: Any = None, model: Any = "fake/sense", options: Any = None, engine: Any = None
) -> str:
    path = file or {"path": upload(client, SAMPLE.read_bytes()).json()[0], "meta": META}
    return call(client, "transcribe", path, model, "pytorch", options or {}, "", "basic", engine or {})


def test_normal_visitor_gets_a_transcript(client: httpx.Client) -> None:
    assert '"text"' in transcribe(client)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../etc/passwd", "/proc/self/environ", "assets/samples/../../pyproject.toml"]
)
def test_paths_of_the_server_are_refused(client: httpx.Client, path: str) -> None:
    assert "was not uploaded to this page" in transcribe(client, {"path": path, "meta": META})
    assert client.get(f"/gradio_api/file={path}").status_code in (403, 404)
    assert "there is no" in transcribe(client, model=path)


def test_mcp_tools_accept_upload_ids_and_refuse_paths(client: httpx.Client) -> None:
    upload_id = client.post("/mcp/files", files={"file": ("a.wav", SAMPLE.read_bytes())}).json()["id"]

    def call_tool(**audio: str) -> dict[str, Any]:
        params = {"name": "transcribe", "arguments": {"model": "fake/sense", "audio": audio}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = client.post("/mcp", json=request, headers={"accept": "application/json, text/event-stream"})
        [line] = [line for line in answer.text.splitlines() if line.startswith("data: {")]
        return dict(json.loads(line.removeprefix("data: "))["result"])

    assert call_tool(upload=upload_id)["content"][0]["text"] == "three eleven one"
    assert "/gradio_api" not in upload_id
    for result in (call_tool(path="/etc/passwd"), call_tool(upload="/etc/passwd"), call_tool(upload=f"../{upload_id}")):
        assert result["isError"] and "upload" in result["content"][0]["text"]


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1/a.wav",
        "http://169.254.169.254/latest/meta-data",
        "ftp://10.0.0.1/a",
        "file:///etc/passwd",
        "//x/a",
    ],
)
def test_server_fetches_no_urls_from_requests(client: httpx.Client, address: str) -> None:
    assert "none is fetched here" in transcribe(client, {"path": address, "meta": META})
    for separator in "=/":  # Gradio's route for files, and an older name of it
        assert client.get(f"/gradio_api/file{separator}{address}", follow_redirects=False).status_code == 404
    assert client.get(f"/gradio_api/proxy={address}", follow_redirects=False).status_code == 404


def test_symlink_in_an_upload_folder_is_not_followed(client: httpx.Client) -> None:
    path = Path(upload(client, b"x", "link.wav").json()[0])
    path.unlink()
    path.symlink_to("/etc/passwd")
    try:
        assert "root:" not in client.get(f"/gradio_api/file={path}").text
        assert "was not uploaded" in transcribe(client, {"path": str(path), "meta": META})
    finally:
        path.unlink()


def test_upload_paths_are_unguessable_and_inside_the_folder_of_the_visitor(client: httpx.Client) -> None:
    first, second = (Path(upload(client, b"same").json()[0]) for _ in range(2))
    assert first != second and first.parents[2] == second.parents[2]
    assert len(first.parents[1].name) == 32
    for folder in list(first.parents)[:5]:
        assert client.get(f"/gradio_api/file={folder}").status_code in (403, 404)


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>.wav", "../../../a.wav", "a\0b.wav", "x" * 300 + ".wav"])
def test_malicious_upload_names_cause_no_harm(client: httpx.Client, name: str) -> None:
    answer = upload(client, b"x", name)
    assert answer.status_code in (200, 400, 507)
    assert "<img" not in transcribe(client, {"path": answer.json()[0], "meta": META}) if answer.is_success else True


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"options": {"beam_size": 100_000}}, "expected"),
        ({"options": "[" * 50_000}, "not JSON"),
        ({"options": {"a": "x" * 70_000}}, "kB of text"),
        ({"model": "x" * 100_000}, "kB of text"),
        ({"model": "x" * 60_000}, "there is no"),
        ({"model": f"fake/sense|{'x' * 60_000}|f32"}, "there is no"),
        ({"options": {"x" * 60_000: 1}}, "has an option 'xxx"),
        ({"engine": {"kv_gigabytes": 3}}, "cannot be set here"),
        ({"model": "fake/hub"}, "not open to visitors"),
        ({"options": {"vad": "/etc"}}, "option vad"),
    ],
)
def test_expensive_or_owner_only_parameters_are_refused(client: httpx.Client, changed: Any, sentence: str) -> None:
    answer = transcribe(client, **changed)
    assert sentence in answer and len(answer) < 1000


@pytest.mark.parametrize("action", ["leaves", "cancels"])
def test_call_is_abandoned_when_its_visitor_leaves_or_cancels(
    client: httpx.Client, public: Served, action: str
) -> None:
    session = public.registry.sessions["fake/sense"]
    session.abandoned.clear()
    calls_before = len(session.calls)
    public.registry.gate.clear()
    path = {"path": upload(client, SAMPLE.read_bytes()).json()[0], "meta": META}
    request = {"data": [path, "fake/sense", "pytorch", {}, "", "basic", {}], "session_hash": f"visitor who {action}"}
    event = client.post("/gradio_api/call/transcribe", json=request).json()["event_id"]
    with client.stream("GET", f"/gradio_api/call/transcribe/{event}"):
        until(lambda: len(session.calls) > calls_before)
        if action == "cancels":
            [number] = [
                each["id"] for each in client.get("/config").json()["dependencies"] if each["api_name"] == "transcribe"
            ]
            client.post("/gradio_api/cancel", json={**request, "event_id": event, "fn_index": number})
    until(lambda: not leaving.at_work)  # the event has ended, and its visitor's place is free
    public.registry.gate.set()
    assert session.abandoned.wait(20), "the model continued"


def test_recordings_of_one_visitor_do_not_block_the_page(
    client: httpx.Client, public: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, started = threading.Event(), threading.Semaphore(0)

    def decode(path: Path) -> None:
        started.release()
        assert gate.wait(60)
        raise BadInput("enough")

    monkeypatch.setattr(chat_routes, "read", decode)
    with ThreadPoolExecutor(16) as threads:
        answers = [threads.submit(httpx.post, f"{public.url}chat/sound", content=b"x", timeout=60) for _ in range(16)]
        try:
            assert started.acquire(timeout=60)
            script = re.findall(r"assets/[\w.-]+\.js", client.get("/").text)[0]
            assert client.get(f"/{script}").status_code == 200 and client.get("/chat/offer").status_code == 200
            until(lambda: any(answer.done() for answer in answers))
        finally:
            gate.set()
    assert {answer.result().status_code for answer in answers} == {200, 429}


def test_zip_bomb_is_refused(client: httpx.Client) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("logits.npy", "w") as member:
        for _ in range(9):
            member.write(bytes(1 << 20))
    assert len(buffer.getvalue()) < 20_000
    bomb = {"path": upload(client, buffer.getvalue(), "bomb.npz").json()[0], "meta": META}
    answer = call(client, "compare", "", "", [], None, "", "*", {}, "", False, [bomb, bomb], None, {}, [], [], [])
    assert "unpacks into 9 MB; expected at most 8 MB" in answer


def test_comparison_runs_in_a_separate_process_with_a_memory_limit(tmp_path: Path) -> None:
    files = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for value, file in enumerate(files):
        np.savez_compressed(file, encoder=np.full((80 << 20, 1), value, np.int8))
        assert file.stat().st_size < 200_000
    guard = Guard("public", replace(PUBLIC, process_gb=0.5))
    memory_before = resident_bytes(os.getpid())
    with pytest.raises(WorkbenchError, match="more memory than it may have"):
        compare_in_separate_process(guard, *files)
    assert resident_bytes(os.getpid()) - memory_before < 100 << 20
    cancelled_work = Work()
    cancelled_work.stop.set()
    with pytest.raises(Cancelled), working(cancelled_work):
        compare_in_separate_process(guard, *files)
    assert not guard.queue.running


def test_events_of_an_unknown_call_return_a_one_line_error(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.get("/gradio_api/call/transcribe/nothing")
    assert answer.status_code == 404 and answer.json()["error"].startswith("there is no such call")
    answer = client.get("/gradio_api/queue/data", params={"session_hash": "\0"})
    event = json.loads(answer.text.removeprefix("data: "))
    assert event["session_not_found"] and event["message"].startswith("there is no such call")
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("path", ["queue/join", "call/transcribe", "run/transcribe", "api/transcribe", "cancel"])
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "the body of the request is not JSON;"),
        (b"NaN", "the body of the request is not JSON;"),
        (b'{"data": [1e999]}', "the body of the request is not JSON;"),
        (rb'{"data": [], "fn_index": 0, "session_hash": "\ud800"}', "the body of the request is not JSON;"),
        (b"[" * 100_000, "the body of the request is not JSON;"),
        (b"[]", "the body of the request is not a JSON object;"),
        (b'{"data": [], "session_hash": 5}', "session_hash is 5; expected a text"),
        (b'{"data": [], "event_id": {}}', "event_id is {}; expected a text"),
        (b'{"data": [], "session_hash": ""}', "session_hash is empty; expected a text"),
        (b'{"data": [], "session_hash": "%s"}' % (b"x" * 201), "session_hash has 201 characters; expected at most"),
    ],
)
def test_malformed_request_body_returns_a_one_line_error(
    client: httpx.Client, caplog: pytest.LogCaptureFixture, path: str, body: bytes, sentence: str
) -> None:
    answer = client.post(f"/gradio_api/{path}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"].startswith(sentence)
    assert not [record for record in caplog.records if record.exc_info]


def test_message_to_a_forgotten_session_does_not_stop_the_queue() -> None:
    queue = leaving.LeavingQueue(True, 1, 1.0, None, cast(Any, SimpleNamespace()))
    event = cast(Any, SimpleNamespace(alive=True, session_hash="forgotten", _id="x"))
    queue.send_message(event, HeartbeatMessage())
    assert not queue.pending_messages_per_session


def test_unread_sessions_of_one_address_are_limited() -> None:
    guard = Guard("public", replace(PUBLIC, sessions=2))
    queue = leaving.LeavingQueue(True, 1, 1.0, None, cast(Any, SimpleNamespace(guard=guard)))
    for address, session in [("theirs", "polite"), *(("own", f"flood {number}") for number in range(5))]:
        queue.pending_messages_per_session[session] = AsyncQueue()
        queue.pending_messages_per_session[session].put_nowait(HeartbeatMessage())
        queue._forget_unread(address, session)
    assert list(queue.pending_messages_per_session) == ["polite", "flood 3", "flood 4"]


def test_wrong_choice_and_foreign_path_are_refused_without_a_traceback(
    client: httpx.Client, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    config = client.get("/config").json()
    for name, value in (("choose", {"x": 1}), ("measure", {"path": "/etc/passwd", "meta": META})):
        [function] = [each for each in config["dependencies"] if each["api_name"] == name]
        values = [value] * len(function["inputs"])
        answer = client.post(f"/gradio_api/run/{name}", json={"data": values, "fn_index": function["id"]})
        assert answer.status_code == 400 and "the page got a" in answer.json()["error"], answer.text
    assert not caplog.records and "Traceback" not in capfd.readouterr().err


def test_path_of_a_proxy_does_not_bypass_the_check_of_a_body() -> None:
    """With `--root-path`, a proxy may send that path before each route."""
    bodies = JsonBodies(PlainTextResponse("passed on"), cast(Any, SimpleNamespace(fns={})))
    behind_proxy = TestClient(bodies, root_path="/sub")
    for path in ("/gradio_api/queue/join", "/sub/gradio_api/queue/join"):
        assert behind_proxy.post(path, content=b"NaN").status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("queue/join", {"data": [], "fn_index": 99999, "session_hash": "s"}, 404),
        ("queue/join", {"data": [], "fn_index": -1, "session_hash": "s"}, 404),
        ("queue/join", {"data": [], "fn_index": [], "session_hash": "s"}, 404),
        ("run/nothing", {"data": []}, 404),
        ("call/nothing", {"data": []}, 404),
        ("run/transcribe", {"data": 5}, 400),
        ("run/transcribe", {"data": None, "fn_index": 0}, 400),
    ],
)
def test_unknown_function_or_missing_data_returns_a_one_line_error(
    client: httpx.Client, caplog: pytest.LogCaptureFixture, path: str, body: dict[str, Any], status: int
) -> None:
    answer = client.post(f"/gradio_api/{path}", json=body)
    assert answer.status_code == status and "expected a JSON object with data" in answer.json()["error"]
    assert not [record for record in caplog.records if record.exc_info]


def test_refused_input_returns_status_400(client: httpx.Client) -> None:
    missing: list[Any] = [None, "nobody/nothing", "pytorch", {}, "", "basic", {}]
    answer = client.post("/gradio_api/run/transcribe", json={"data": missing})
    assert answer.status_code == 400 and answer.json()["error"]


@pytest.mark.parametrize(
    ("error", "status"), [(BadInput("no"), 400), (Busy("later", 3.0), 429), (RuntimeError("a fault"), 500)]
)
def test_http_status_matches_the_kind_of_error(error: Exception, status: int) -> None:
    outgoing: list[Any] = []

    async def send(message: Any) -> None:
        outgoing.append(message)

    async def respond() -> None:
        with with_fitting_status(send) as answer:
            await asyncio.to_thread(page_error, error)
            await answer({"type": "http.response.start", "status": 500})

    finished(respond())
    assert outgoing == [{"type": "http.response.start", "status": status}]


def test_deep_json_is_refused(client: httpx.Client) -> None:
    deep: Any = []
    for _ in range(60):
        deep = [deep]
    assert "nested too deeply" in transcribe(client, options={"a": deep})


def test_large_requests_are_refused(client: httpx.Client, public: Served) -> None:
    assert upload(client, b"x" * (3 << 20)).status_code == 413
    answer = client.post("/gradio_api/queue/join", content=b"[" * (2 << 20))
    assert answer.status_code == 413 and "MB" in answer.json()["error"]
    assert (
        client.post("/v1/chat/completions", content=b"[" * (2 << 20)).json()["error"]["type"] == "invalid_request_error"
    )
    assert client.get("/", headers={"x-large": "x" * (70 << 10)}).status_code == 431
    url = urlsplit(public.url)
    with socket.create_connection((url.hostname, url.port), timeout=60) as connection, suppress(ConnectionError):
        connection.sendall(b"GET /" + b"x" * (2 << 20))  # and no end
        assert b"400" in connection.recv(1000)


def test_interrupted_upload_leaves_no_file(client: httpx.Client, public: Served, uploads: Path) -> None:
    files_before = files_in(uploads)
    url = urlsplit(public.url)
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.sendall(
            f"POST {UPLOAD} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: 900000\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
            'Content-Disposition: form-data; name="files"; filename="a.wav"\r\n\r\n'.encode()
            + b"x" * 100_000
        )
        until(lambda: files_in(uploads) > files_before)
    until(lambda: files_in(uploads) == files_before)


def test_slow_request_body_ends_with_status_408(
    client: httpx.Client, public: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_middleware, "BODY_SECONDS", 0.2)
    url = urlsplit(public.url)
    with socket.create_connection((url.hostname, url.port), timeout=60) as connection:
        connection.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: 900\r\n"
            'Content-Type: application/json\r\n\r\n{"model'.encode()
        )
        assert "408" in connection.recv(1000).decode().splitlines()[0]


def test_each_file_of_a_multipart_form_counts_as_an_upload(
    client: httpx.Client, public: Served, uploads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public.pool.guard, "_uploads", Rate(3, 3600.0, "uploads", 1))
    files_before = files_in(uploads)
    answer = client.post(UPLOAD, files=[("files", (f"{number}.wav", b"x")) for number in range(4)])
    assert answer.status_code == 429 and "takes 3 uploads" in answer.json()["error"]
    assert files_in(uploads) == files_before


def test_oldest_uploads_are_deleted_when_a_visitor_exceeds_the_disk_quota(client: httpx.Client) -> None:
    paths = [Path(upload(client, bytes([value]) * 400_000).json()[0]) for value in range(4)]
    assert [path.exists() for path in paths] == [False, False, True, True]


def test_full_disk_returns_status_507_until_space_is_free(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(kept_files, "SPARE", 1 << 60)
        answer = upload(client, b"x")
        assert answer.status_code == 507 and "disk of this server" in answer.json()["error"]
    assert upload(client, b"x").status_code == 200


def test_cross_origin_requests_are_refused(client: httpx.Client) -> None:
    for origin in ("http://evil.example", "null"):
        for path in ("/gradio_api/queue/join", "/chat/open"):
            answer = client.post(path, json={}, headers={"origin": origin})
            assert answer.status_code == 403 and "another site" in answer.json()["error"]


def test_security_headers_block_foreign_scripts(client: httpx.Client) -> None:
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert "frame-ancestors 'self'" in policy and page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["x-frame-options"] == "SAMEORIGIN" and "Public mode" in page.text
    second_policy = client.get("/").headers["content-security-policy"]
    assert second_policy != policy  # another nonce
    path = upload(client, b"<script>alert(1)</script>", "a.html").json()[0]
    assert "sandbox" in client.get(f"/gradio_api/file={path}").headers["content-security-policy"]
    assert client.get(f"/gradio_api/file/{path}").status_code == 404  # an older name of the route


@pytest.mark.parametrize(
    "path", ["/monitoring", "/gradio_api/deep_link", "/gradio_api/dev/reload", "/gradio_api/vibe-code"]
)
def test_unused_gradio_routes_return_404(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_owner_only_events_are_refused_for_visitors(public: Served, client: httpx.Client) -> None:
    config = client.get("/config").json()
    private = [each for each in config["dependencies"] if each.get("api_visibility") == "private"]
    components = {each["id"]: each for each in config["components"]}
    [idle] = [
        each
        for each in private
        if components.get((each["inputs"] or [0])[0], {}).get("props", {}).get("elem_id") == "idle-minutes"
    ][:1]
    joined = client.post(
        "/gradio_api/queue/join", json={"data": [0.2], "fn_index": idle["id"], "session_hash": "stranger"}
    )
    assert joined.status_code == 200
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": "stranger"}) as events:
        event_line = next(line for line in events.iter_lines() if "process_completed" in line)
    assert "for the owner" in json.loads(event_line.removeprefix("data: "))["output"]["error"]
    assert public.pool.idle_minutes != 0.2
