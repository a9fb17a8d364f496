"""vLLM's server of a tiny SpeechLM: chat completions in text and speech, compared with the same model on PyTorch."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.runtimes.vllm.remote.real_server import RealServer  # noqa: E402
from tests.support.processes import Background, eventually  # noqa: E402
from tests.support.tiny_checkpoints import noise  # noqa: E402
from tests.support.tiny_speechlm import tiny_speechlm  # noqa: E402
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of  # noqa: E402
from workbench.conversion.vllm_checkpoint.directory import write_directory  # noqa: E402
from workbench.core.errors import BadInput, SessionDied, Unavailable  # noqa: E402
from workbench.core.settings import Server, SessionSpec, Settings  # noqa: E402
from workbench.pipelines.conversation.conversation_session import ConversationSession  # noqa: E402
from workbench.runtimes.pytorch.speechlm import open_session as open_on_pytorch  # noqa: E402
from workbench.runtimes.vllm.remote import open_session  # noqa: E402
from workbench.runtimes.vllm.remote.sound import wav  # noqa: E402
from workbench.session.conversation import Answer, AudioPiece  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROUTE = "/v1/chat/completions"
LIMITS = {"max_text_tokens": 8, "max_audio_rows": 14, "min_audio_rows": 9}
LONG_OPTIONS: dict[str, Any] = {"modalities": ["audio"], "min_audio_rows": 5000, "max_audio_rows": 5000}
SIZES = {"head_dim": 32, "max_position_embeddings": 6000}  # the smallest head, and a context for long answers
API_MODALITIES = {"text": ["text"], "audio": ["audio"], "text_audio": ["text", "audio"], "auto": "auto"}
SOUND = np.asarray(noise(0.7)[0], np.float32)
RECORDING = {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav(SOUND)).decode(), "format": "wav"}}


@pytest.fixture(scope="module", autouse=True)
def no_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_speechlm(tmp_path_factory.mktemp("models") / "tiny", language=SIZES).directory


@pytest.fixture(scope="module")
def server(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("served")
    write_directory(plan_of(directory, "speechlm"), folder / "tiny")
    process = RealServer(folder / "tiny", folder / "server.log")
    yield process
    process.kill()


@pytest.fixture(scope="module")
def local(directory: Path) -> Iterator[ConversationSession]:
    session = open_on_pytorch(directory, "far", Settings(threads=1, dtype="float32"))
    yield session
    session.close()


@pytest.fixture(scope="module")
def remote_session(server: RealServer) -> Iterator[Any]:
    session = open_session(SessionSpec("far", "speechlm", "vllm", Path(), server=Server(server.url, "far")))
    yield session
    session.close()


def cases() -> list[tuple[Any, dict[str, Any]]]:
    """Texts and recordings in all modalities, greedy and sampled, two of them with guidance."""
    pairs: list[tuple[Any, dict[str, Any]]] = []
    for number in range(8):
        messages: Any = [{"role": "user", "content": " ".join(["say", "one", "two"][: 1 + number % 3])}]
        if number % 3 == 2:
            messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [RECORDING]}]
        options = {
            "modalities": list(API_MODALITIES)[number % 4],
            "seed": number,
            "temperature": (0.0, 0.9)[number // 4],
        }
        guided = {"cfg": 3.0} if number in (1, 6) else {}
        pairs.append((messages, {**LIMITS, **options, **guided}))
    return pairs


def body(messages: Any, options: dict[str, Any], **fields: Any) -> dict[str, Any]:
    request = {"model": "far", "messages": messages, "return_token_ids": True, **options, **fields}
    return (
        {**request, "modalities": API_MODALITIES[options["modalities"]]}
        if isinstance(options.get("modalities"), str)
        else request
    )


def post(server: RealServer, request: Any) -> Any:
    return httpx.post(f"{server.url}{ROUTE}", json=request, timeout=300)


def complete(server: RealServer, request: Any) -> Any:
    response = post(server, request)
    assert response.status_code == 200, response.text
    return response.json()


def stream_chunks(server: RealServer, request: Any) -> list[Any]:
    """Returns the chunks of a stream, and asserts that it ends with [DONE]."""
    with httpx.stream("POST", f"{server.url}{ROUTE}", json={**request, "stream": True}, timeout=300) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines[-1] == "[DONE]", lines
    return [json.loads(line) for line in lines[:-1]]


def assert_same_ids(choice: Any, expected: Answer) -> None:
    assert choice["token_ids"] == list(expected.token_ids) and choice["finish_reason"] == expected.finish
    assert choice["streams"] == (None if expected.streams is None else expected.streams.tolist())


def test_whole_answers_equal_pytorch(server: RealServer, local: ConversationSession) -> None:
    """All ids, the text, and the file of speech are the same."""
    for messages, options in cases():
        expected = local.converse(messages, **options)
        response = complete(server, body(messages, options))
        [choice] = response["choices"]
        assert_same_ids(choice, expected)
        assert response["usage"]["prompt_tokens"] == expected.prompt_rows
        message = choice["message"]
        if options["modalities"] in ("audio", "text_audio"):
            assert message["content"] is None and message["audio"]["transcript"] == expected.text
        else:
            assert message["content"] == expected.text
        assert (expected.audio is None) == (not (message["audio"] or {}).get("data"))
        if expected.audio is not None:
            assert base64.b64decode(message["audio"]["data"]) == expected.wav()


def test_streamed_chunks_join_to_the_whole_answer(server: RealServer) -> None:
    for messages, options in cases():
        full = complete(server, body(messages, options, audio={"voice": "default", "format": "pcm16"}))["choices"][0]
        chunks = stream_chunks(server, body(messages, options, stream_options={"include_usage": True}))
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] > 0
        choices = [chunk["choices"][0] for chunk in chunks[:-1]]
        assert choices[0]["delta"]["role"] == "assistant"
        assert [token for choice in choices for token in choice.get("token_ids", [])] == full["token_ids"]
        assert ([row for choice in choices for row in choice.get("streams", [])] or None) == full["streams"]
        audio = [choice["delta"].get("audio") or {} for choice in choices]
        message = full["message"]
        assert "".join(choice["delta"].get("content") or "" for choice in choices) == (message["content"] or "")
        if message["audio"] is None:
            assert not any(audio)
            continue
        assert "".join(part.get("transcript", "") for part in audio) == message["audio"]["transcript"]
        data = b"".join(base64.b64decode(part.get("data", "")) for part in audio)
        assert data == base64.b64decode(message["audio"]["data"])
        assert sum("id" in part for part in audio) == sum("expires_at" in part for part in audio) == 1


def test_dialogue_refers_to_earlier_speech_by_audio_id(server: RealServer, local: ConversationSession) -> None:
    options = {**LIMITS, "modalities": "text_audio", "temperature": 0.0}
    messages: list[Any] = [{"role": "user", "content": [RECORDING]}]
    server_messages = list(messages)
    for _ in range(2):
        expected = local.converse(messages, **options)
        message = complete(server, body(server_messages, options))["choices"][0]["message"]
        messages += [expected.message(), {"role": "user", "content": "again"}]
        server_messages += [
            {"role": "assistant", "audio": {"id": message["audio"]["id"]}},
            {"role": "user", "content": "again"},
        ]
    assert_same_ids(complete(server, body(server_messages, options))["choices"][0], local.converse(messages, **options))


def test_concurrent_requests_equal_single_requests_with_a_token_limit(server: RealServer) -> None:
    requests = [body(messages, options, max_completion_tokens=11) for messages, options in cases()]
    single = [complete(server, request)["choices"][0] for request in requests]
    assert {len(choice["token_ids"]) <= 11 for choice in single} == {True}
    assert any(len(choice["token_ids"]) == 11 and choice["finish_reason"] == "length" for choice in single)
    with ThreadPoolExecutor(4) as pool:
        concurrent = [answer["choices"][0] for answer in pool.map(lambda request: complete(server, request), requests)]
    assert [choice["token_ids"] for choice in concurrent] == [choice["token_ids"] for choice in single]
    assert [choice["streams"] for choice in concurrent] == [choice["streams"] for choice in single]


@pytest.mark.parametrize(
    ("fields", "status", "param", "message"),
    [
        ({"n": 2}, 400, "n", "n is 2, and a request has one answer"),
        ({"model": "other"}, 404, "model", "the server has no model 'other'; it has far"),
        ({"modalities": ["audio"], "audio": {"format": "aac"}}, 400, "audio.format", "audio.format is 'aac', and this"),
        ({"cfg": 0.5, "modalities": ["audio"]}, 400, None, "option cfg of far is 0.5; expected 1 to 20"),
        ({"audio_temperature": 1e9}, 400, None, "option audio_temperature of far is 1000000000.0; expected"),
        (
            {"messages": [{"role": "user", "content": [{"type": "audio", "audio": "/etc/hostname"}]}]},
            400,
            "messages[0].content[0]",
            "messages[0].content[0] is of type 'audio'; expected text or input_audio",
        ),
        ({"messages": [{"role": "user", "content": "x" * 20000}]}, 400, None, "the conversation is "),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_unsupported_requests_return_openai_style_errors(
    fields: dict[str, Any], status: int, param: str | None, message: str, stream: bool, server: RealServer
) -> None:
    response = post(
        server, {"model": "far", "messages": [{"role": "user", "content": "a"}], "stream": stream, **fields}
    )
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(message) and "\n" not in error["message"]


def generated_count(server: RealServer) -> float:
    """The number of tokens that the engine has generated so far, from its metrics."""
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:generation_tokens_total{"))


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_aborted_in_the_engine(stream: bool, server: RealServer) -> None:
    content = json.dumps(body([{"role": "user", "content": "a"}], LONG_OPTIONS, stream=stream)).encode()
    fields = {"Host": "far", "Content-Type": "application/json", "Content-Length": len(content)}
    head = "".join([f"POST {ROUTE} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in fields.items()), "\r\n"])
    count_before = generated_count(server)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + content)
        if stream:
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
        eventually(lambda: server.running() == 1)
    eventually(lambda: server.running() == 0)
    assert 0 < generated_count(server) - count_before < LONG_OPTIONS["max_audio_rows"] - 100


def test_openai_client_reads_whole_and_streamed_answers(server: RealServer, local: ConversationSession) -> None:
    openai = pytest.importorskip("openai", reason="needs OpenAI's client")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    expected = local.converse("hello", modalities="text_audio", temperature=0.0, **LIMITS)
    request: Any = {
        "model": "far",
        "messages": [{"role": "user", "content": "hello"}],
        "modalities": ["text", "audio"],
        "temperature": 0,
        "extra_body": LIMITS,
    }
    answer = client.chat.completions.create(audio={"voice": "alloy", "format": "wav"}, **request)
    audio = answer.choices[0].message.audio
    assert base64.b64decode(audio.data) == expected.wav() and audio.transcript == expected.text
    assert answer.usage.completion_tokens == len(expected.token_ids)
    assert answer.notes == ["the model has one voice, so the voice 'alloy' was not used"]
    chunks = list(client.chat.completions.create(audio={"voice": "alloy", "format": "pcm16"}, stream=True, **request))
    pieces = [delta["audio"] for chunk in chunks if (delta := chunk.choices[0].delta.to_dict()).get("audio")]
    assert b"".join(base64.b64decode(piece.get("data") or "") for piece in pieces) == expected.wav()[44:]
    history = [*request["messages"], answer.choices[0].message, {"role": "user", "content": "again"}]
    next_answer = client.chat.completions.create(**{**request, "messages": history, "modalities": ["text"]})
    messages = [*request["messages"], expected.message(), {"role": "user", "content": "again"}]
    assert (
        next_answer.choices[0].message.content
        == local.converse(messages, modalities="text", temperature=0.0, **LIMITS).text
    )
    with pytest.raises(openai.BadRequestError, match="a request has one answer"):
        client.chat.completions.create(n=2, **request)


def test_remote_session_answers_equal_a_local_session(remote_session: Any, local: ConversationSession) -> None:
    """Text and recordings, streamed, with all ids; earlier speech of the assistant is sent back exactly."""
    pairs = cases()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda case: remote_session.converse(case[0], **case[1]), pairs))
    for actual, (messages, options) in zip(answers, pairs, strict=True):
        expected = local.converse(messages, **options)
        assert (
            actual.token_ids == expected.token_ids and actual.text == expected.text and actual.finish == expected.finish
        )
        assert actual.layout == expected.layout and actual.prompt_rows == expected.prompt_rows
        assert actual.settings == expected.settings and actual.notes == expected.notes
        assert (actual.streams is None) == (expected.streams is None)
        if actual.streams is not None:
            np.testing.assert_array_equal(actual.streams, expected.streams)
            np.testing.assert_allclose(actual.audio, expected.audio, atol=1e-4)
    speech = next(answer for answer in answers if answer.streams is not None)
    messages = [{"role": "user", "content": "a"}, speech.message(), {"role": "user", "content": "b"}]
    options = {**LIMITS, "modalities": "text", "probabilities": True}
    actual, expected = remote_session.converse(messages, **options), local.converse(messages, **options)
    assert actual.token_ids == expected.token_ids
    np.testing.assert_allclose(actual.probabilities, expected.probabilities, atol=1e-4)


def test_remote_session_raises_server_errors_and_aborts_when_closed(remote_session: Any, server: RealServer) -> None:
    with pytest.raises(BadInput, match=r"refuses the request \(400\): the conversation is "):
        remote_session.converse("x" * 20000)
    with contextlib.closing(remote_session.converse_stream("a", **{**LONG_OPTIONS, "modalities": "audio"})) as stream:
        next(event for event in stream if isinstance(event, AudioPiece) and event.rows > 20)
    eventually(lambda: server.running() == 0)


def test_killed_server_raises_session_died_and_then_unavailable(remote_session: Any, server: RealServer) -> None:
    """The last test of this file, as it kills the server."""
    call = Background(lambda: remote_session.converse("a", **{**LONG_OPTIONS, "modalities": "audio"}))
    eventually(lambda: server.running() == 1)
    server.kill()
    assert isinstance(call.ended().error, SessionDied)
    with pytest.raises(Unavailable, match="cannot be reached: Connection refused"):
        remote_session.converse("a")
