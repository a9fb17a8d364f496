"""Malformed and malicious requests to the public page: each is refused with a one-line error.

docs/security.md names the line that each test shows.
"""

from __future__ import annotations

import asyncio
import errno
import json
import time
from asyncio import Queue as AsyncQueue
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from gradio.server_messages import HeartbeatMessage
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from panels.running import leaving
from panels.running.call_status import with_fitting_status
from panels.running.error_boundary import page_error
from panels.running.json_bodies import JsonBodies
from panels.running.uploads import MAX_FOLLOWED, UploadProgress
from tests.panels.attacks.attacker import META, transcribe, upload
from tests.support.coroutines import finished
from workbench.core.errors import BadInput, Busy
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.limits import PUBLIC


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
        refused = ("the page got a", "the server no longer has a file that is chosen here")
        assert answer.status_code == 400 and answer.json()["error"].startswith(refused), answer.text
    assert not caplog.records and "Traceback" not in capfd.readouterr().err


NUMBERS_AND_TEXTS: list[Any] = [{"x": 1}, [], [None], 5, True]


@pytest.mark.parametrize(
    ("name", "values", "event"),
    [
        ("select_tab", [None], {}),
        ("measure_files", [None], {"value": []}),
        ("look_at_last", [None], None),
        ("start", NUMBERS_AND_TEXTS, None),
        ("experiments", NUMBERS_AND_TEXTS, None),
        ("open", [None], None),
        ("pick_sample", [None], {"path": "/etc/passwd", "meta": META}),
    ],
)
def test_values_that_no_user_can_enter_leave_no_traceback(
    client: httpx.Client,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    name: str,
    values: list[Any],
    event: Any,
) -> None:
    functions = client.get("/config").json()["dependencies"]
    for function in (each for each in functions if each["api_name"].startswith(name)):
        for value in values:
            call = {"data": [value] * len(function["inputs"]), "fn_index": function["id"], "event_data": event}
            answer = client.post(f"/gradio_api/run/{function['api_name']}", json=call)
            assert answer.status_code in (200, 400), answer.text
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
    ("error", "status"),
    [
        (BadInput("no"), 400),
        (Busy("later", 3.0), 429),
        (OSError(errno.ENOSPC, "No space left"), 507),
        (RuntimeError("a fault"), 500),
    ],
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


def test_questions_for_the_progress_of_unknown_uploads_take_no_memory(client: httpx.Client) -> None:
    start = time.monotonic()
    answer = client.get("/gradio_api/upload_progress", params={"upload_id": "x" * 201})
    assert answer.status_code == 404 and time.monotonic() - start < 2  # the page's own ids are waited for

    async def ask() -> int:
        progress = UploadProgress()
        asking = [asyncio.create_task(progress.is_tracked(str(number))) for number in range(3 * MAX_FOLLOWED)]
        progress.track("begun")
        assert await progress.is_tracked("begun") and not progress.is_done("begun")
        await asyncio.sleep(0)
        for task in asking:
            task.cancel()
        progress.set_done("begun")
        progress.stop_tracking("begun")
        return len(progress._signals)

    assert finished(ask()) <= MAX_FOLLOWED


@pytest.mark.parametrize("path", ["call/transcribe", "run/transcribe", "queue/join", "cancel", "reset"])
def test_form_in_place_of_json_gets_a_sentence_without_the_body(
    client: httpx.Client, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    files = {"file": ("a.wav", b"RIFF\x80\xff" * 1000)}
    answer = client.post(f"/gradio_api/{path}", files=files)
    assert answer.status_code in (400, 422) and len(answer.text) < 500
    assert answer.json()["error"].startswith("the body of the request is not")
    assert not caplog.records


def test_missing_fields_are_named_without_the_body(client: httpx.Client) -> None:
    answer = client.post("/gradio_api/cancel", json={"x": "a" * 50_000})
    assert answer.status_code == 422 and answer.json()["error"].startswith(
        "session_hash is not as this address expects"
    )
    assert len(answer.text) < 300


@pytest.mark.parametrize(
    ("span", "status"),
    [
        ("bytes=1-2", 206),
        ("bytes=-2", 206),
        ("bytes=1-", 206),
        ("bytes=0-0,2-2", 200),
        ("bytes=--1", 200),
        ("bytes=0-" + "9" * 5000, 200),
        ("lines=1-2", 200),
    ],
)
def test_odd_ranges_of_a_file_are_ignored(
    client: httpx.Client, caplog: pytest.LogCaptureFixture, span: str, status: int
) -> None:
    path = upload(client, b"abcd").json()[0]
    answer = client.get(f"/gradio_api/file={path}", headers={"range": span})
    assert answer.status_code == status and (status == 206 or answer.content == b"abcd")
    assert not caplog.records
