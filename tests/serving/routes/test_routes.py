"""OpenAI's routes through OpenAI's client and raw HTTP: response formats, streams, refusals and disconnects."""

from __future__ import annotations

import asyncio
import base64
import errno
import gzip
import io
import threading
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
import soundfile
from openai import OpenAI
from starlette.requests import Request
from starlette.testclient import TestClient

from tests.support.coroutines import finished
from tests.support.fake_chat import FakeChatRegistry
from tests.support.fake_panels import FakeGgufRegistry, tone
from workbench.serving.admission.gate import Gate
from workbench.serving.admission.limits import LOCAL, PUBLIC
from workbench.serving.routes import bodies
from workbench.serving.routes.health import listed
from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST, ClientGone, all_events, events_of
from workbench.serving.server import application
from workbench.serving.service import Service
from workbench.serving.sessions import SessionPool

CHAT: Any = [{"role": "user", "content": "one two three"}]


@pytest.fixture
def wav(tmp_path: Path) -> bytes:
    return tone(tmp_path / "two seconds.wav").read_bytes()


def test_models_are_listed_with_and_without_a_runtime(client: OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert {"fake/sense", "fake/sense|pytorch", "fake/speech|vllm", "fake/words"} <= {*names} and names == sorted(names)
    assert client.models.retrieve("fake/speech|vllm").owned_by == "speech-workbench"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("whisper-1")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("form", ["json", "text", "srt", "vtt", "verbose_json"])
def test_transcription_is_returned_in_every_response_format(client: OpenAI, wav: bytes, form: Any) -> None:
    transcription: Any = client.audio.transcriptions.create(
        file=("a.wav", wav), model="fake/sense", response_format=form
    )
    if form == "json":
        assert (transcription.text, transcription.usage.seconds) == ("three eleven one", 2.0)
    elif form == "verbose_json":
        assert [(segment.start, segment.end, segment.text) for segment in transcription.segments] == [
            (0.0, 0.5, "three"), (0.5, 1.0, "eleven"), (1.0, 1.5, "one"),
        ]  # fmt: skip
        assert (transcription.duration, transcription.language, transcription.words) == (2.0, "en", None)
        assert transcription.segments[0].avg_logprob is None, "no model computed it"
    else:
        assert transcription.split("\n")[0] == {"text": "three eleven one", "srt": "1", "vtt": "WEBVTT"}[form]
        assert ("-->" in transcription) == (form != "text")


def test_joined_stream_deltas_equal_the_transcript(client: OpenAI, wav: bytes) -> None:
    events = list(client.audio.transcriptions.create(file=("a.wav", wav), model="fake/sense", stream=True))
    assert [event.type for event in events] == [*["transcript.text.delta"] * 3, "transcript.text.done"]
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == "three eleven one"  # type: ignore[union-attr]


def test_note_says_that_a_model_gives_no_times_of_words(http: TestClient, wav: bytes) -> None:
    fields = {"model": "fake/sense", "response_format": "verbose_json"}
    for asked in ({}, {"timestamp_granularities[]": "segment"}, {"timestamp_granularities[]": "word"}):
        form = {"data": {**fields, **asked}, "files": {"file": ("a.wav", wav)}}
        found = http.post("/v1/audio/transcriptions", **form).json()  # type: ignore[arg-type]
        assert ("notes" in found) == ("words" in found) == ("word" in asked.values())
    assert found["words"] == [] and found["notes"] == ["this model gives no times of words, so words is empty"]


@pytest.mark.parametrize(
    "fields, status, sentence",
    [
        ({"model": "gpt-9"}, 404, "the server has no model 'gpt-9' for this route; it has fake/sense, fake/para"),
        ({"model": "fake/words"}, 404, "the server has no model 'fake/words' for this route"),
        ({"langauge": "en"}, 400, "the form has the unknown field langauge; did you mean language?"),
        ({"response_format": "xml"}, 400, "response_format is 'xml'; expected one of json, text, srt, vtt"),
        ({"stream": "maybe"}, 400, "stream is 'maybe'; expected true or false"),
        ({"stream": "true", "response_format": "srt"}, 400, "response_format is srt, and a stream is of text alone"),
        ({"timestamp_granularities[]": "word"}, 400, "response_format is json; set it to verbose_json"),
        ({"chunking_strategy[type]": "server_vad"}, 400, "chunking_strategy[type] is 'server_vad', and the option vad"),
        ({"include[]": "logprobs"}, 400, "this server returns no log-probabilities of transcripts; leave it out"),
        ({"beam_size": "many"}, 400, "beam_size is 'many'; expected a whole number"),
        ({"beam_size": "-1"}, 400, "option beam_size of fake/sense is -1; expected"),
        ({"vad": "/etc/passwd"}, 400, "option vad is '/etc/passwd'; expected one of auto, silero, none, fake/vad"),
        ({"lm": "/etc/passwd"}, 400, "option lm is '/etc/passwd'; expected a file that was uploaded"),
        ({"temperature": "0.5"}, 400, "temperature is 0.5, and this model draws nothing; leave it out"),
    ],
)  # fmt: skip
def test_invalid_form_field_is_refused_with_its_name(
    http: TestClient, wav: bytes, fields: dict[str, str], status: int, sentence: str
) -> None:
    answer = http.post(
        "/v1/audio/transcriptions", data={"model": "fake/sense", **fields}, files={"file": ("a.wav", wav)}
    )
    assert answer.status_code == status and sentence in answer.json()["error"]["message"]


def test_file_without_sound_is_refused_before_a_model_is_loaded(http: TestClient, registry: FakeChatRegistry) -> None:
    noise = b"no sound at all"
    answer = http.post("/v1/audio/transcriptions", data={"model": "fake/sense"}, files={"file": ("talk.wav", noise)})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("talk.wav is not a sound file that can be read")
    part = {"type": "input_audio", "input_audio": {"data": base64.b64encode(noise).decode(), "format": "wav"}}
    request = {"model": "fake/speech", "messages": [{"role": "user", "content": [part]}]}
    answer = http.post("/v1/chat/completions", json=request)
    assert answer.status_code == 400 and registry.opened == []
    assert answer.json()["error"]["message"].startswith("message 1, part 1: recording.wav is not a sound file")
    answer = http.post("/v1/chat/completions", json={**request, "model": "fake/words"})
    assert answer.status_code == 400 and registry.opened == []
    assert answer.json()["error"]["message"].startswith(
        "message 1, part 1: it is sound, and fake/words reads text only"
    )


def test_forms_without_one_valid_recording_are_refused(http: TestClient, wav: bytes) -> None:
    def refusal(**form: Any) -> tuple[int, str]:
        answer = http.post("/v1/audio/transcriptions", **form)
        return answer.status_code, answer.json()["error"]["message"]

    model = {"model": "fake/sense"}
    assert refusal(json=model) == (415, "the content type is application/json; expected multipart/form-data")
    assert refusal(files={"other": ("a.wav", wav)}, data=model)[1].startswith(
        "the form has the files other; expected one"
    )
    assert refusal(files=[("file", ("a", wav)), ("file", ("b", wav))], data=model)[1].startswith(
        "the form has the files"
    )
    assert refusal(files={"file": ("", b"")}, data=model)[0] == 400
    assert refusal(files={"file": ("a.wav", b"")}, data=model) == (400, "file is empty; expected a recording")
    assert refusal(files={"x": ("", "")}, data={"file": "text", **model})[1].startswith("file is a text")
    status, message = refusal(content=b"--x\r\nbroken", headers={"content-type": "multipart/form-data; boundary=x"})
    assert status == 400 and "file" in message
    assert refusal(content=b"--", headers={"content-type": "multipart/form-data"})[0] == 400
    status, message = refusal(files={"file": ("../../etc/x .wav", b"no sound " * 99)}, data=model)
    assert status == 400 and message.startswith("x .wav is not a sound file"), "the client's name, without its folders"
    assert refusal(files={"file": ("a.wav", wav)}, data={"model": "fake/hub"})[0] == 503


def test_recording_that_cannot_be_stored_returns_an_error(
    http: TestClient, wav: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bodies, "make_tempdir", lambda: tmp_path / "gone"
    )  # as on a full disk, no file can be written there
    answer = http.post("/v1/audio/transcriptions", data={"model": "fake/sense"}, files={"file": ("a.wav", wav)})
    assert answer.status_code == 507 and "found no room on this server" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("number", "status", "sentence"),
    [
        (errno.ENOSPC, 507, "the disk of this server is full"),
        (errno.EFBIG, 507, "the disk of this server is full"),  # beyond `ulimit -f`
        (errno.EMFILE, 503, "as many files and connections open"),
    ],
)
def test_exhausted_resource_during_the_work_returns_its_status(
    http: TestClient,
    registry: FakeChatRegistry,
    caplog: pytest.LogCaptureFixture,
    number: int,
    status: int,
    sentence: str,
) -> None:
    registry.writer.fault = OSError(number, "the text of the system")
    request = {"model": "fake/words", "messages": [{"role": "user", "content": "one"}]}
    answer = http.post("/v1/chat/completions", json=request)
    assert answer.status_code == status and sentence in answer.json()["error"]["message"]
    assert not caplog.records


def test_body_beyond_the_limit_is_refused_with_413(
    service: Service, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.gate, "largest_body", 1000)
    monkeypatch.setattr(service.gate, "largest_json", 1000)
    for path, content in (
        ("/v1/audio/transcriptions", {"files": {"file": ("a.wav", b"x" * 2000)}}),
        ("/v1/chat/completions", {"json": {"model": "x" * 2000}}),
    ):
        answer = http.post(path, **content)
        assert answer.status_code == 413 and "the most that this server takes" in answer.json()["error"]["message"]


def test_long_text_beside_a_recording_is_refused(service: Service, http: TestClient, wav: bytes) -> None:
    service.gate = Gate(replace(PUBLIC, text_kb=1))
    form: Any = {"data": {"model": "fake/sense", "prompt": "x" * 2000}, "files": {"file": ("a.wav", wav)}}
    answer = http.post("/v1/audio/transcriptions", **form)
    assert answer.status_code == 400 and "maximum size of 1KB" in answer.json()["error"]["message"]


def test_json_of_too_many_values_is_refused_before_it_fills_the_memory(http: TestClient) -> None:
    body = b'{"messages": [' + b",".join([b"{}"] * (bodies.MAX_VALUES // 2 + 1)) + b"]}"
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/audio/speech", "/mcp"):
        answer = http.post(path, content=body)
        assert answer.status_code == 413 and "524,288 values" in answer.json()["error"]["message"]


def test_chat_completion_is_returned_whole_and_as_a_stream(client: OpenAI) -> None:
    completion = client.chat.completions.create(model="fake/words", messages=CHAT)
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("one two three", "stop")
    assert completion.model == "fake/words" and completion.usage
    stream = client.chat.completions.create(
        model="fake/words|pytorch",
        messages=CHAT,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "one two three"
    assert chunks[-1].usage == completion.usage


def test_stop_text_ends_the_answer_and_the_generation(client: OpenAI, registry: FakeChatRegistry) -> None:
    for stream in (False, True):
        registry.writer.abandoned.clear()
        completion: Any = client.chat.completions.create(model="fake/words", messages=CHAT, stop=" thr", stream=stream)
        text = (
            "".join(chunk.choices[0].delta.content or "" for chunk in completion)
            if stream
            else completion.choices[0].message.content
        )
        assert text == "one two"
        assert registry.writer.abandoned.wait(10)


def test_chat_completion_returns_audio_with_its_transcript(client: OpenAI) -> None:
    options: Any = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
    message = client.chat.completions.create(model="fake/speech", messages=CHAT, **options).choices[0].message
    assert message.audio.transcript == "one two three"
    assert soundfile.read(io.BytesIO(base64.b64decode(message.audio.data)))[1] == 16000


@pytest.mark.parametrize(
    "path, method, status, code",
    [
        ("/v1/audio/translations", "POST", 404, "unknown_url"),
        ("/v1/audio/speech", "GET", 405, None),
        ("/v1/models", "DELETE", 405, None),
        ("/v1/files", "PUT", 404, "unknown_url"),
        ("/audio/transcriptions", "POST", 404, "unknown_url"),  # an address without /v1
        ("/", "GET", 404, "unknown_url"),
        ("/v1", "GET", 404, "unknown_url"),
    ],
)
def test_unknown_routes_and_methods_return_openai_errors(
    http: TestClient, path: str, method: str, status: int, code: str | None
) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status and answer.json()["error"]["code"] == code


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/audio/transcriptions"])
def test_compressed_body_is_refused_by_the_name_of_its_coding(http: TestClient, path: str) -> None:
    kind = "multipart/form-data; boundary=x" if "audio" in path else "application/json"
    headers = {"content-encoding": "gzip", "content-type": kind}
    answer = http.post(path, content=gzip.compress(b"{}"), headers=headers)
    assert answer.status_code == 415 and "compressed with gzip" in answer.json()["error"]["message"]


def test_realtime_route_without_a_websocket_says_what_it_is(http: TestClient) -> None:
    answer = http.get("/v1/realtime")
    assert answer.status_code == 400 and "is a websocket" in answer.json()["error"]["message"]


def test_models_with_a_runtime_are_listed_without_their_quantisation() -> None:
    with SessionPool(FakeGgufRegistry()) as pool:  # type: ignore[arg-type]
        models = listed(Service(pool))
    assert {"fake/sense", "fake/sense|gguf", "fake/sense|gguf|q8_0", "fake/sense|pytorch"} <= {*models}
    assert models["fake/sense|gguf"]["title"] == models["fake/sense|gguf|f32"]["title"]


NO_JSON = (b"", b"{", b"[]", b"[" * 100_000, b"\xff", b'{"top_p": NaN}', b'{"seed": 1e999}', rb'{"a\ud800": 1}')


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "line 1 column 2"),
        (b'{"top_p": NaN}', "NaN is not a JSON number"),
        (b'{"seed": -' + 309 * b"9" + b"}", f"-{19 * '9'} is too large"),
        (b'{"seed": ' + 5000 * b"9" + b"}", f"{20 * '9'} is too large"),
        (rb'{"model": "a\ud800"}', "a text holds half a character"),
    ],
)
def test_body_that_is_no_json_is_refused_with_the_reason(http: TestClient, body: bytes, why: str) -> None:
    answer = http.post("/v1/chat/completions", content=body)
    sentence = answer.json()["error"]["message"]
    assert sentence.startswith("the body of the request is not JSON (") and why in sentence and "\n" not in sentence


@pytest.mark.parametrize("body", NO_JSON)
def test_bodies_other_than_a_json_object_return_status_400(http: TestClient, body: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/audio/speech"):
        answer = http.post(path, content=body)
        assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error"


def test_unexpected_error_returns_status_500_without_details(http: TestClient, registry: FakeChatRegistry) -> None:
    registry.writer.fault = RuntimeError("secret /home/path")
    answer = http.post("/v1/chat/completions", json={"model": "fake/words", "messages": CHAT})
    assert answer.status_code == 500 and "secret" not in answer.text and "log of the server" in answer.text


def test_health_readiness_and_metrics_are_reported(http: TestClient, wav: bytes) -> None:
    assert http.get("/health").json()["status"] == "ok"
    assert http.get("/ready").json()["status"] == "ready"
    http.post("/v1/audio/transcriptions", data={"model": "fake/sense"}, files={"file": ("a.wav", wav)})
    http.post("/v1/audio/transcriptions", data={"model": "nobody"}, files={"file": ("a.wav", wav)})
    lines = http.get("/metrics").text.splitlines()
    assert 'workbench_audio_seconds_total{model="fake/sense|pytorch",route="transcriptions"} 2.0' in lines
    assert 'workbench_requests_total{model="none",route="transcriptions",status="404"} 1.0' in lines
    assert any(line.startswith('workbench_model_memory_bytes{model="fake/sense"') for line in lines)


def test_full_server_returns_status_429_with_retry_after(service: Service, http: TestClient) -> None:
    service.gate = Gate(replace(LOCAL, running=1, waiting=0))
    with service.gate.working():
        answer = http.post("/v1/chat/completions", json={"model": "fake/words", "messages": CHAT})
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0
    assert http.post("/v1/chat/completions", json={"model": "fake/words", "messages": CHAT}).status_code == 200


def test_client_disconnect_stops_the_running_call() -> None:
    started, ended = threading.Event(), threading.Event()

    def work(stop: threading.Event) -> Generator[int, None, None]:
        started.set()
        assert stop.wait(30)
        ended.set()
        yield 1

    async def receive_disconnect() -> dict[str, Any]:
        await asyncio.to_thread(started.wait)
        return {"type": "http.disconnect"}

    async def disconnect() -> None:
        request = Request({"type": "http", "headers": []}, receive_disconnect)
        with pytest.raises(ClientGone):
            await all_events(request, work)
        started.clear()
        ended.clear()
        events = events_of(work)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.to_thread(started.wait)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await events.aclose()

    finished(disconnect())
    assert ended.wait(30)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/v1/completions", "application/json"), ("/v1/audio/transcriptions", "multipart/form-data; boundary=b")],
)
def test_client_disconnect_during_the_request_is_not_logged_as_an_error(
    service: Service, caplog: pytest.LogCaptureFixture, path: str, kind: str
) -> None:
    headers = [(b"content-type", kind.encode())]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    incoming: list[dict[str, Any]] = [{"type": "http.request", "body": b"--b", "more_body": True}]
    outgoing: list[Any] = []

    async def receive() -> dict[str, Any]:
        return incoming.pop() if incoming else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        outgoing.append(message)

    finished(application(service)(scope, receive, send))
    assert outgoing[0]["status"] == CLIENT_CLOSED_REQUEST and not caplog.records
