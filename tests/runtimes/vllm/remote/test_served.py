"""Sessions on vLLM's own server of the demo model, compared with the same model on PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.runtimes.vllm.remote.real_server import RealServer
from tests.support.processes import Background, eventually
from workbench.artifacts.vllm_directories import vllm_directory
from workbench.core.errors import BadInput, SessionDied, Unavailable
from workbench.core.settings import Server, SessionSpec
from workbench.families.language.causal_lm import CausalLmOptions
from workbench.isolation.loader import Session
from workbench.registry.registry import Registry
from workbench.registry.sources import assets
from workbench.runtimes.vllm.remote import open_session
from workbench.runtimes.vllm.remote.sampling import alternatives_fields, sampling_fields, streaming_fields
from workbench.runtimes.vllm.remote.service import CHAT
from workbench.runtimes.vllm.remote.text import RemoteTextSession
from workbench.session.values import Partial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SAMPLES = assets() / "samples"
THREE = [SAMPLES / f"{name}.wav" for name in ("three_seven_one", "long_digits", "librivox_austen_0880")]
PROMPT = "count from three to seven"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("served")))
        return vllm_directory(assets() / "demo-funasr-nano", "funasr_nano")


@pytest.fixture(scope="module")
def real_server(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    process = RealServer(directory, tmp_path_factory.mktemp("log") / "server.log")
    yield process
    process.kill()


@pytest.fixture(scope="module")
def local() -> Iterator[Registry]:
    with Registry(isolate=False) as registry:
        yield registry


def open_remote(server: RealServer, family: str) -> Session:
    return open_session(SessionSpec("far", family, "vllm", Path(), server=Server(server.url, "far")))


@pytest.fixture
def speech(real_server: RealServer) -> Iterator[Session]:
    session = open_remote(real_server, "funasr_nano")
    yield session
    session.close()


@pytest.fixture
def text(real_server: RealServer) -> Iterator[RemoteTextSession]:
    session = open_remote(real_server, "causal_lm")
    assert isinstance(session, RemoteTextSession)
    yield session
    session.close()


def test_all_request_fields_exist_in_vllm_protocols() -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    names = {*sampling_fields(CausalLmOptions(temperature=1.0), 1), *streaming_fields(), "model"}
    chat, completion = ({*alternatives_fields(2, chats)} for chats in (True, False))
    assert names | chat | {"messages", "chat_template_kwargs"} <= ChatCompletionRequest.model_fields.keys()
    assert names | completion | {"prompt", "prompt_embeds"} <= CompletionRequest.model_fields.keys()


@pytest.mark.parametrize(
    "options",
    [{}, {"language": "en", "itn": False, "hotwords": ["seven", "nine"]}, {"min_new_tokens": 12, "max_new_tokens": 14}],
)
def test_remote_transcripts_equal_pytorch(speech: Session, local: Registry, options: dict) -> None:
    """Three recordings at once, one of which has many chunks."""
    remote = speech.transcribe_batch(THREE, **options)
    with local.open(assets() / "demo-funasr-nano", "pytorch") as session:
        expected = session.transcribe_batch(THREE, **options)
    for actual, reference in zip(remote, expected, strict=True):
        assert (
            actual.tokens == reference.tokens
            and actual.segments == reference.segments
            and actual.text == reference.text
        )
        assert actual.notes == reference.notes


def test_transcription_route_gives_the_same_texts_as_the_chat_route(speech: Session) -> None:
    from_chat = speech.transcribe_batch(THREE)
    recogniser = speech.recogniser  # type: ignore[attr-defined]
    recogniser.service = replace(recogniser.service, routes=recogniser.service.routes - {CHAT})
    from_transcription = speech.transcribe_batch(THREE)
    assert [transcript.text for transcript in from_transcription] == [transcript.text for transcript in from_chat]
    assert all(
        not transcript.tokens and "does not send their tokens" in transcript.notes[0]
        for transcript in from_transcription
    )


@pytest.mark.parametrize(
    "prompt, options",
    [
        (PROMPT, {}),
        ([{"role": "system", "content": "Count."}, {"role": "user", "content": "two, three"}], {"max_new_tokens": 20}),
        ("one, two, three", {"chat": False, "max_new_tokens": 20}),
    ],
)
def test_remote_generated_tokens_equal_pytorch(
    text: RemoteTextSession, local: Registry, prompt: object, options: dict
) -> None:
    actual = text.generate(prompt, **options)
    with local.open("demo/qwen3", "pytorch") as session:
        expected = session.generate(prompt, **options)
    assert (actual.tokens, actual.text, actual.finish) == (expected.tokens, expected.text, expected.finish)
    assert actual.prompt_tokens == expected.prompt_tokens


@pytest.mark.parametrize("options", [{}, {"chat": False}, {"temperature": 1.2, "seed": 3}])
def test_remote_alternatives_equal_pytorch(text: RemoteTextSession, local: Registry, options: dict) -> None:
    actual = text.generate(PROMPT, alternatives=4, max_new_tokens=8, **options)
    assert len(actual.alternatives) == len(actual.tokens) and all(len(step) == 4 for step in actual.alternatives)
    with local.open("demo/qwen3", "pytorch") as session:
        expected = session.generate(PROMPT, alternatives=4, max_new_tokens=8, **options)
    count = len(expected.alternatives) if not options.get("temperature") else 1  # sampled tokens differ
    for actual_step, expected_step in zip(actual.alternatives[:count], expected.alternatives[:count], strict=True):
        assert [(alternative.id, alternative.text) for alternative in actual_step] == [
            (alternative.id, alternative.text) for alternative in expected_step
        ]
        assert [alternative.logprob for alternative in actual_step] == pytest.approx(
            [alternative.logprob for alternative in expected_step], abs=1e-3
        )


def test_refusal_of_the_server_is_raised_with_its_message(text: RemoteTextSession) -> None:
    with pytest.raises(BadInput, match=r"refuses the request \(400\): .*5000"):
        text.generate(PROMPT, max_new_tokens=5000)


def test_a_closed_stream_is_aborted_in_the_engine(real_server: RealServer, text: RemoteTextSession) -> None:
    with contextlib.closing(text.generate_stream(PROMPT, max_new_tokens=1900, min_new_tokens=1900)) as stream:
        next(piece for piece in stream if getattr(piece, "tokens", ()))
        assert real_server.running() == 1
    eventually(lambda: real_server.running() == 0)


def at_work(pid: int) -> bool:
    """Whether the process runs; an orphan may stay a zombie where no process adopts it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_killed_server_raises_one_error_and_a_restarted_server_is_used(
    real_server: RealServer, directory: Path, speech: Session, tmp_path: Path
) -> None:
    transcript_before = speech.transcribe(THREE[0])
    pids = [
        real_server.process.pid,
        *(child.pid for child in psutil.Process(real_server.process.pid).children(recursive=True)),
    ]
    stream = speech.stream_batch(THREE, min_new_tokens=500)
    partials = (event for _, event in stream if isinstance(event, Partial) and event.text)
    assert next(partials) and next(partials)
    real_server.kill()
    with pytest.raises(
        SessionDied, match=r"^the server http://127\.0\.0\.1:\d+ closed the connection before its answer"
    ):
        list(stream)
    assert not [pid for pid in pids if at_work(pid)], "no process of the server is left"
    with pytest.raises(Unavailable, match="cannot be reached: Connection refused; start it there with vllm serve"):
        speech.transcribe(THREE[0])
    restarted = RealServer(directory, tmp_path / "server.log", real_server.port)
    try:
        calls = [Background(lambda: speech.transcribe(THREE[0])) for _ in range(4)]
        assert {call.ended().result.tokens for call in calls} == {transcript_before.tokens}
    finally:
        restarted.kill()


def test_remote_fireredasr_transcripts_equal_pytorch(local: Registry, tmp_path: Path) -> None:
    """The last test: an earlier test has killed the server of the other model."""
    choices = ({}, {"max_new_tokens": 40, "min_new_tokens": 10})
    own_server = RealServer(vllm_directory(assets() / "demo-fireredasr", "fireredasr"), tmp_path / "server.log")
    try:
        session = open_remote(own_server, "fireredasr")
        remote = [transcript for options in choices for transcript in session.transcribe_batch(THREE, **options)]
        session.close()
    finally:
        own_server.kill()
    with local.open(assets() / "demo-fireredasr", "pytorch") as session:
        expected = [transcript for options in choices for transcript in session.transcribe_batch(THREE, **options)]
    for actual, reference in zip(remote, expected, strict=True):
        assert (
            actual.tokens == reference.tokens
            and actual.segments == reference.segments
            and actual.notes == reference.notes
        )
