"""The MCP server through an MCP client over HTTP: tools, progress, one-line errors, and the limits for visitors."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest
import soundfile
import uvicorn
from mcp import Client

from tests.support.coroutines import finished
from tests.support.fake_chat import FakeChatRegistry
from tests.support.fake_injection import WIDTH, FakeInjectRegistry
from tests.support.fake_panels import tone
from tests.support.waits import until
from workbench.families.language.directory import PLACEHOLDER
from workbench.serving.admission.access_middleware import AccessMiddleware
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.keys import Keys
from workbench.serving.admission.limits import PUBLIC
from workbench.serving.kept_files import KeptFiles
from workbench.serving.mcp.server import Mcp
from workbench.serving.mcp.tools import build
from workbench.serving.server import application
from workbench.serving.service import Service
from workbench.serving.sessions import SessionPool
from workbench.trace.write import write_trace

Result = TypeVar("Result")
Reports = list[tuple[float, str]]
MCP_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@contextmanager
def running_server(registry: Any, guard: Guard | None = None, keys: Keys | None = None) -> Iterator[str]:
    """The routes of a server behind their access middleware, on a port that the system chose."""
    with SessionPool(registry, guard=guard) as pool, closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        app = AccessMiddleware(application(Service(pool)), pool.guard, keys=keys, page=False)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def address(registry: FakeChatRegistry) -> Iterator[str]:
    with running_server(registry) as url:
        yield url


def use_client(address: str, use: Callable[[Client], Awaitable[Result]], mode: str = "auto") -> Result:
    async def connect() -> Result:
        async with Client(f"{address}/mcp", mode=mode) as client:
            return await use(client)

    result: Result = finished(connect())
    return result


def call_tool(address: str, tool: str, arguments: Mapping[str, Any], mode: str = "auto") -> tuple[Any, Reports]:
    """Returns the result of a tool and its progress reports: pairs of the share done and a message."""
    reports: Reports = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        assert total == 1.0
        reports.append((done, message or ""))

    async def use(client: Client) -> Any:
        return await client.call_tool(tool, dict(arguments), progress_callback=progress)

    return use_client(address, use, mode), reports


def refusal(address: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """Returns the one-line error of a tool that refuses the call."""
    result, _ = call_tool(address, tool, arguments)
    assert result.is_error and len(result.content) == 1
    message = str(result.content[0].text)
    assert message and "\n" not in message and "Error executing" not in message and "Traceback" not in message
    return message


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def upload(address: str, content: bytes, name: str) -> httpx.Response:
    return httpx.post(f"{address}/mcp/files", files={"file": (name, content)})


@pytest.fixture
def wav(tmp_path: Path) -> bytes:
    return tone(tmp_path / "two seconds.wav").read_bytes()


def test_tools_and_their_parameters_have_descriptions(address: str) -> None:
    async def use(client: Client) -> Any:
        return (await client.list_tools()).tools, client.instructions

    tools, instructions = use_client(address, use)
    assert {each.name for each in tools} == {"transcribe", "compare", "inject", "chat", "models"}
    for tool in tools:
        assert tool.title and len(tool.description) > 40
        for name, parameter in tool.input_schema["properties"].items():
            assert parameter.get("description"), f"{tool.name} does not describe {name}"
        assert "ctx" not in tool.input_schema["properties"]
    assert "/mcp/files" in instructions


def test_building_the_mcp_server_does_not_change_the_root_logger(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # as in a server; pytest adds its own
    level = root.level
    build(service, KeptFiles(tmp_path, service.pool.guard.limits))
    assert (root.level, root.handlers) == (level, [])


def test_models_tool_lists_models_with_their_tasks(address: str) -> None:
    result, _ = call_tool(address, "models", {"task": "transcribe"})
    models = {each["id"]: each for each in result.structured_content["models"]}
    assert {"fake/sense", "fake/sense|pytorch"} <= models.keys() and "fake/words" not in models
    assert models["fake/sense"]["ready"] and "fake/sense: transcribe" in result.content[0].text
    assert refusal(address, "models", {"task": "sing"}) == "task is 'sing'; expected one of converse, transcribe"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_transcribe_tool_reports_progress_and_returns_the_transcript(
    address: str, registry: FakeChatRegistry, wav: bytes, mode: str
) -> None:
    registry.gate.clear()  # after the first word, until its progress has come
    audio = {"data": encoded(wav), "name": "a.wav"}
    reports: Reports = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        reports.append((done, message or ""))
        if "of 2 s" in reports[-1][1]:  # reports of the load may be left out if they come too fast
            registry.gate.set()

    async def use(client: Client) -> Any:
        arguments = {"model": "fake/sense", "audio": audio, "language": "en", "words": True}
        return await client.call_tool("transcribe", arguments, progress_callback=progress)

    result = use_client(address, use, mode)
    assert not result.is_error and result.content[0].text == "three eleven one"
    content = result.structured_content
    assert (content["model"], content["duration"], content["language"]) == ("fake/sense|pytorch", 2.0, "en")
    assert [(each["start"], each["text"]) for each in content["segments"]] == [
        (0, "three"),
        (0.5, "eleven"),
        (1, "one"),
    ]
    assert "words" in content
    assert len(reports) >= 2 and reports == sorted(reports) and len({done for done, _ in reports}) == len(reports)
    assert reports[-1][0] <= 1 and any("of 2 s" in message for _, message in reports)


def test_prompt_request_is_refused_with_a_one_line_error(address: str, caplog: pytest.LogCaptureFixture) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "x"}}
    answer = httpx.post(f"{address}/mcp", json=request, headers=MCP_HEADERS)
    assert "there is no prompt 'x'; this server has tools alone" in answer.text
    assert not [record for record in caplog.records if record.exc_info]


def test_client_disconnect_during_the_request_is_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    headers = [(name.encode(), value.encode()) for name, value in MCP_HEADERS.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "query_string": b""}
    incoming: list[Any] = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{", "more_body": True}]
    outgoing: list[Any] = []

    async def receive() -> Any:
        return incoming.pop()

    async def send(message: Any) -> None:
        outgoing.append(message)

    async def disconnect() -> None:
        async with mcp.lifespan():
            await mcp(scope, receive, send)

    with SessionPool(FakeChatRegistry()) as pool:  # type: ignore[arg-type]
        mcp = Mcp(Service(pool))
        finished(disconnect())
    assert not outgoing and not incoming and not [record for record in caplog.records if record.exc_info]


def test_streamed_body_beyond_the_limit_is_refused_with_413() -> None:
    def pieces() -> Iterator[bytes]:
        yield from (b"x" * (1 << 20) for _ in range(3))

    guard = Guard("public", replace(PUBLIC, body_mb=1))
    with running_server(FakeChatRegistry(), guard) as address:
        answer = httpx.post(f"{address}/mcp", content=pieces(), headers=MCP_HEADERS)
    assert answer.status_code == 413 and "more than 1 MB" in answer.json()["error"]["message"]


def test_uploaded_file_is_accepted_by_its_id(address: str, wav: bytes) -> None:
    answer = upload(address, wav, "../../two seconds.wav")
    assert answer.status_code == 200 and answer.json()["name"] == "two seconds.wav"
    assert answer.json()["bytes"] == len(wav)
    result, _ = call_tool(address, "transcribe", {"model": "fake/sense", "audio": {"upload": answer.json()["id"]}})
    assert result.content[0].text == "three eleven one"
    error = refusal(address, "transcribe", {"model": "fake/sense", "audio": {"upload": "0" * 32}})
    assert error.startswith(f"audio: there is no upload '{'0' * 32}'; expected an id from POST /mcp/files")
    response = httpx.post(f"{address}/mcp/files", files={"other": ("a.wav", wav)})
    assert response.status_code == 400 and "expected one recording as file" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"audio": {"data": "no base64!"}}, "audio: data is not base64; expected the file's content in base64"),
        ({"audio": {"data": encoded(b"no sound " * 99), "name": "x.wav"}}, "x.wav is not a sound file"),
        ({"audio": {}}, "audio is empty; expected either data (base64) or upload"),
        ({"audio": {"data": "AAAA", "upload": "0" * 32}}, "audio has data and upload; expected either"),
        ({"audio": {"path": "/etc/passwd"}}, "audio.path is not a field here; a file has data (base64) or upload"),
        ({"audio": "/etc/passwd"}, "audio is not an object; a file has data (base64)"),
        ({"audio": {"upload": "/etc/passwd"}}, "audio: there is no upload '/etc/passwd'"),
        ({"audio": {"upload": "../../etc"}}, "audio: there is no upload '../../etc'"),
        ({}, "audio is missing in the call of transcribe"),
        ({"audio": {"data": "AAAA"}, "model": "/etc"}, "the server has no model '/etc' for this route; it has fake/"),
        ({"audio": {"data": "AAAA"}, "options": {"vad": "/etc/passwd"}}, "option vad is '/etc/passwd'; expected one"),
        ({"audio": {"data": "AAAA"}, "options": {"lm": "/etc/passwd"}}, "option lm is '/etc/passwd'; expected a file"),
        ({"audio": {"data": "AAAA"}, "options": {"beem": 1}}, "none of the chosen models has an option 'beem'"),
        ({"audio": {"data": "AAAA"}, "file": "a.wav"}, "transcribe has no parameter 'file'; it has model, audio"),
    ],
)  # fmt: skip
def test_invalid_transcribe_call_returns_a_one_line_error(
    wav: bytes, arguments: dict[str, Any], sentence: str, shared: str
) -> None:
    assert sentence in refusal(shared, "transcribe", {"model": "fake/sense", **arguments})


def test_file_without_sound_is_refused_before_a_model_is_loaded(address: str, registry: FakeChatRegistry) -> None:
    arguments = {"model": "fake/sense", "audio": {"data": encoded(b"no sound"), "name": "x.wav"}}
    assert "x.wav is not a sound file" in refusal(address, "transcribe", arguments) and registry.opened == []
    figures = httpx.get(f"{address}/metrics").text
    assert 'route="mcp transcribe",status="400"} 1.0' in figures and 'status="500"' not in figures


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    """A public server that no test changes."""
    with running_server(FakeInjectRegistry(), Guard("public", replace(PUBLIC, requests_per_minute=10_000))) as url:
        yield url


def test_compare_tool_names_the_first_divergent_stage_of_two_traces(shared: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    stages = {f"encoder.layers.{n}": draw.normal(size=(5, 4)).astype(np.float32) for n in range(3)}
    meta = {"dtype": "float32", "model": "m"}
    reference = write_trace(tmp_path / "reference.safetensors", stages, meta)
    altered = {name: each + (0.1 if name.endswith("1") else 0) for name, each in stages.items()}
    candidate = write_trace(tmp_path / "candidate.safetensors", altered, meta)
    upload_id = upload(shared, reference.read_bytes(), "reference.safetensors").json()["id"]
    arguments = {
        "reference": {"upload": upload_id},
        "candidate": {"data": encoded(candidate.read_bytes()), "name": "candidate.safetensors"},
    }
    result, reports = call_tool(shared, "compare", {**arguments, "preset": "f32"})
    assert not result.is_error, result.content
    content = result.structured_content
    assert not content["verdict"]["within"] and content["verdict"]["first_divergent"] == "encoder.layers.1"
    assert result.content[0].text.startswith("encoder.layers.1 is the first stage beyond")
    assert [each["stage"] for each in content["stages"]] == ["encoder.layers.1"] and content["stages_compared"] == 3
    assert reports
    every, _ = call_tool(shared, "compare", {**arguments, "all_stages": True, "preset": "f32"})
    assert len(every.structured_content["stages"]) == 3
    invalid = {**arguments, "candidate": {"data": encoded(b"PK no trace"), "name": "candidate.safetensors"}}
    assert "candidate.safetensors" in refusal(shared, "compare", invalid)


def test_inject_tool_inserts_an_embedding_into_a_prompt(shared: str) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((3, WIDTH), np.float32))
    embedding = {"data": encoded(buffer.getvalue())}
    arguments = {"model": "fake/text", "prompt": f"What is {PLACEHOLDER}?", "embeddings": [embedding]}
    result, _ = call_tool(shared, "inject", arguments)
    assert result.content[0].text == "seven one three" and result.structured_content["model"] == "fake/text|pytorch"
    assert (
        refusal(shared, "inject", {**arguments, "prompt": "no place"})
        == "the prompt has 0 placeholders and 1 embeddings"
    )
    assert "embeddings is empty" in refusal(shared, "inject", {**arguments, "embeddings": []})
    assert "embeddings[0]" in refusal(shared, "inject", {**arguments, "embeddings": [{"data": encoded(b"\x93NUM")}]})


def test_chat_tool_returns_text_and_speech(address: str, wav: bytes) -> None:
    result, reports = call_tool(address, "chat", {"model": "fake/words", "message": "one two three"})
    assert result.content[0].text == result.structured_content["text"] == "one two three" and reports
    arguments = {"model": "fake/speech", "message": "hello", "audio": {"data": encoded(wav), "name": "a.wav"}}
    result, _ = call_tool(
        address,
        "chat",
        {**arguments, "speak": True, "options": {"seed": 3, "max_audio_rows": 20, "audio": {"format": "mp3"}}},
    )
    text, speech = result.content
    assert text.text == "hello" and speech.mime_type == "audio/mpeg"
    assert soundfile.info(io.BytesIO(base64.b64decode(speech.data))).duration > 0.1
    assert "message is empty" in refusal(address, "chat", {"model": "fake/words"})
    assert "did you mean seed" in refusal(address, "chat", {**arguments, "options": {"sede": 3}})
    assert "messages, which the tool sets" in refusal(address, "chat", {**arguments, "options": {"messages": []}})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_client_disconnect_stops_the_transcription(
    address: str, registry: FakeChatRegistry, wav: bytes, mode: str
) -> None:
    registry.gate.clear()

    async def use(client: Client) -> None:
        reported = asyncio.Event()

        async def progress(done: float, total: float | None, message: str | None) -> None:
            reported.set()

        arguments = {"model": "fake/sense", "audio": {"data": encoded(wav)}}
        task = asyncio.create_task(client.call_tool("transcribe", arguments, progress_callback=progress))
        await asyncio.wait_for(reported.wait(), 20)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    use_client(address, use, mode)
    registry.gate.set()
    session = registry.open("fake/sense")
    until(session.abandoned.is_set)


def test_visitors_without_key_or_beyond_the_limits_are_refused(tmp_path: Path, wav: bytes) -> None:
    keys = Keys(tmp_path / "keys.json")
    key = keys.add("assistant")
    limits = replace(PUBLIC, requests_per_minute=6, per_address=1, uploads_per_hour=1)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"accept": "application/json, text/event-stream"}
    with running_server(FakeChatRegistry(), Guard("public", limits), keys) as address, httpx.Client() as client:

        def post(path: str = "/mcp", **headers: str) -> httpx.Response:
            return client.post(f"{address}{path}", json=ping, headers={**accept, **headers})

        assert post().status_code == 401 and post("/mcp/files").status_code == 401
        credentials = {"authorization": f"Bearer {key}"}
        assert post(**credentials).status_code == post("/mcp/", **credentials).status_code == 200
        assert post(**credentials, origin="https://elsewhere.example").status_code == 403
        for method in ("PUT", "GET", "DELETE"):  # GET would open a stream without an end
            refused = client.request(method, f"{address}/mcp", headers={**credentials, **MCP_HEADERS})
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        large = client.post(f"{address}/mcp", content=b"x" * (17 << 20), headers={**credentials, **accept})
        assert large.status_code == 413 and "16 MB" in large.json()["error"]["message"]
        files = {"files": {"file": ("a.wav", wav)}, "headers": credentials}
        assert client.post(f"{address}/mcp/files", **files).status_code == 200  # type: ignore[arg-type]
        assert client.post(f"{address}/mcp/files", **files).status_code == 429  # type: ignore[arg-type]
        statuses = [post(**credentials).status_code for _ in range(6)]
        assert statuses[-1] == 429, statuses


def test_hub_model_is_refused_for_visitors(shared: str, wav: bytes) -> None:
    audio = {"data": encoded(wav)}
    assert "no model 'fake/hub'" in refusal(shared, "transcribe", {"model": "fake/hub", "audio": audio})
