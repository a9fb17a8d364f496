"""Attacks on the public page: each is refused with a one-line error, and the server stays available.

docs/security.md names the line that each test shows.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from panels.chat import routes as chat_routes
from panels.running import leaving
from panels.running.uploads import PATH as UPLOAD
from tests.panels.attacks.attacker import META, SAMPLE, SITE, call, files_in, transcribe, upload
from tests.panels.conftest import Served
from tests.support.waits import until
from workbench.core.errors import BadInput, Cancelled, DiskFull, WorkbenchError
from workbench.core.visitors import Work, working
from workbench.serving import kept_files
from workbench.serving.admission import access_middleware
from workbench.serving.admission.discretion import FULL
from workbench.serving.admission.guard import Guard, Rate
from workbench.serving.admission.limits import PUBLIC
from workbench.serving.comparison import compare_in_separate_process
from workbench.system.memory import resident_bytes


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


@pytest.mark.parametrize("host", ["page.example", "localhost"])
@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:9999", SITE])
def test_only_pages_of_named_sites_can_read_answers(client: httpx.Client, host: str, origin: str) -> None:
    allowed = {origin} if origin == SITE else set()
    headers = {"host": host, "origin": origin}
    for path in ("/v1/models", "/config", "/"):
        answer = client.get(path, headers=headers)
        assert {*answer.headers.get_list("access-control-allow-origin")} == allowed
        assert "access-control-allow-credentials" not in answer.headers
    preflight = client.options("/v1/completions", headers={**headers, "access-control-request-method": "POST"})
    assert {*preflight.headers.get_list("access-control-allow-origin")} == allowed
    assert preflight.status_code == (204 if allowed else 403)


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
    "path",
    [
        "/monitoring",
        "/openapi.json",
        "/pwa_icon/9",
        "/static/" + "a" * 300,
        *(f"/gradio_api/{name}" for name in ("deep_link", "dev/reload", "vibe-code", "stream/a/b/1/playlist.m3u8")),
    ],
)
def test_unused_gradio_routes_return_404(client: httpx.Client, caplog: pytest.LogCaptureFixture, path: str) -> None:
    assert client.get(path).status_code == 404
    assert not caplog.records


def test_errors_name_no_folder_of_the_server(
    client: httpx.Client, public: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(public.pool, "_sessions", {})
    error: WorkbenchError = DiskFull(f"{tmp_path} has 0 MB left and a.gguf needs 7 MB; make room there")

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(public.registry, "open", fail)
    assert f'"error": "{FULL}"' in transcribe(client)
    error = BadInput(f"{tmp_path}/a.gguf is damaged")
    assert '"error": "a.gguf is damaged"' in transcribe(client)


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
