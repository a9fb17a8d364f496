"""Sessions on vLLM's own server of the demo model, against the same model on PyTorch here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.runtimes.vllm.remote.real_server import RealServer
from tests.support.processes import Background, eventually
from workbench.artifacts.vllm_directories import served_directory
from workbench.core.errors import BadInput, SessionDied, Unavailable
from workbench.core.settings import Server, SessionSpec
from workbench.families.causal_lm import CausalLmOptions
from workbench.isolation.loader import Session
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.registry.sources import assets
from workbench.runtimes.vllm.remote import open_session
from workbench.runtimes.vllm.remote.sampling import alternatives_fields, sampling_fields, streaming_fields
from workbench.runtimes.vllm.remote.service import CHAT
from workbench.runtimes.vllm.remote.text import RemoteTextSession
from workbench.session.protocols import last_generation
from workbench.session.values import Partial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SAMPLES = assets() / "samples"
THREE = [SAMPLES / f"{name}.wav" for name in ("three_seven_one", "long_digits", "librivox_austen_0880")]
PROMPT = "count from three to seven"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("served")))
        return served_directory(assets() / "demo-funasr-nano", "funasr_nano")


@pytest.fixture(scope="module")
def served(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(directory, tmp_path_factory.mktemp("log") / "server.log")
    yield server
    server.kill()


@pytest.fixture(scope="module")
def local() -> Iterator[Registry]:
    with Registry(isolate=False) as registry:
        yield registry


def opened(served: RealServer, family: str) -> Session:
    return open_session(SessionSpec("far", family, "vllm", Path(), server=Server(served.url, "far")))


@pytest.fixture
def speech(served: RealServer) -> Iterator[Session]:
    session = opened(served, "funasr_nano")
    yield session
    session.close()


@pytest.fixture
def text(served: RealServer) -> Iterator[RemoteTextSession]:
    session = opened(served, "causal_lm")
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
    """Three at once, one of which has many stretches."""
    far = speech.transcribe_batch(THREE, **options)
    with local.open(assets() / "demo-funasr-nano", "pytorch") as session:
        here = session.transcribe_batch(THREE, **options)
    for theirs, ours in zip(far, here, strict=True):
        assert theirs.tokens == ours.tokens and theirs.segments == ours.segments and theirs.text == ours.text
        assert theirs.notes == ours.notes


def test_transcription_route_gives_the_same_texts_as_the_chat_route(speech: Session) -> None:
    chatted = speech.transcribe_batch(THREE)
    recogniser = speech.recogniser  # type: ignore[attr-defined]
    recogniser.service = replace(recogniser.service, routes=recogniser.service.routes - {CHAT})
    transcribed = speech.transcribe_batch(THREE)
    assert [each.text for each in transcribed] == [each.text for each in chatted]
    assert all(not each.tokens and "does not send their tokens" in each.notes[0] for each in transcribed)


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
    far = text.generate(prompt, **options)
    with local.open("demo/qwen3", "pytorch") as session:
        here = session.generate(prompt, **options)
    assert (far.tokens, far.text, far.finish) == (here.tokens, here.text, here.finish)
    assert far.prompt_tokens == here.prompt_tokens


@pytest.mark.parametrize("options", [{}, {"chat": False}, {"temperature": 1.2, "seed": 3}])
def test_remote_alternatives_equal_pytorch(text: RemoteTextSession, local: Registry, options: dict) -> None:
    far = text.generate(PROMPT, alternatives=4, max_new_tokens=8, **options)
    assert len(far.alternatives) == len(far.tokens) and all(len(step) == 4 for step in far.alternatives)
    with local.open("demo/qwen3", "pytorch") as session:
        here = session.generate(PROMPT, alternatives=4, max_new_tokens=8, **options)
    count = len(here.alternatives) if not options.get("temperature") else 1  # what is drawn differs
    for theirs, ours in zip(far.alternatives[:count], here.alternatives[:count], strict=True):
        assert [(each.id, each.text) for each in theirs] == [(each.id, each.text) for each in ours]
        assert [each.logprob for each in theirs] == pytest.approx([each.logprob for each in ours], abs=1e-3)


def embeddings(session: OpenSession, prompt: str) -> np.ndarray:
    """What the model's own table has for a prompt: [tokens, hidden]."""
    writer = session.session.writer  # type: ignore[attr-defined]
    ids = writer.prompt(prompt, CausalLmOptions()).ids
    return writer.language.embed(np.array([ids]))[0].detach().numpy()


def test_prompt_embeddings_give_the_same_tokens_as_their_text(text: RemoteTextSession, local: Registry) -> None:
    with local.open("demo/qwen3", "pytorch") as session:
        here, rows = session.generate(PROMPT), embeddings(session, PROMPT)
    far = last_generation(text.generate_from_embeddings(rows))
    assert (far.tokens, far.prompt_tokens) == (here.tokens, here.prompt_tokens)
    with pytest.raises(BadInput, match=r"refuses the request \(400\): .*hidden"):
        last_generation(text.generate_from_embeddings(rows[:, :64]))
    assert text.generate(PROMPT).tokens == here.tokens, "the server goes on"


def test_refusal_of_the_server_is_raised_with_its_message(text: RemoteTextSession) -> None:
    with pytest.raises(BadInput, match=r"refuses the request \(400\): .*5000"):
        text.generate(PROMPT, max_new_tokens=5000)


def test_a_closed_stream_is_aborted_in_the_engine(served: RealServer, text: RemoteTextSession) -> None:
    with contextlib.closing(text.generate_stream(PROMPT, max_new_tokens=1900, min_new_tokens=1900)) as stream:
        next(piece for piece in stream if getattr(piece, "tokens", ()))
        assert served.running() == 1
    eventually(lambda: served.running() == 0)


def at_work(pid: int) -> bool:
    """Whether the process runs; whose parent is dead may stay a zombie where nobody adopts it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_killed_server_raises_one_error_and_a_restarted_server_is_used(
    served: RealServer, directory: Path, speech: Session, tmp_path: Path
) -> None:
    before = speech.transcribe(THREE[0])
    pids = [served.process.pid, *(each.pid for each in psutil.Process(served.process.pid).children(recursive=True))]
    stream = speech.stream_batch(THREE, min_new_tokens=500)
    seen = (event for _, event in stream if isinstance(event, Partial) and event.text)
    assert next(seen) and next(seen)
    served.kill()
    with pytest.raises(
        SessionDied, match=r"^the server http://127\.0\.0\.1:\d+ closed the connection before its answer"
    ):
        list(stream)
    assert not [pid for pid in pids if at_work(pid)], "nothing of it is left"
    with pytest.raises(Unavailable, match="cannot be reached: Connection refused; start it there with vllm serve"):
        speech.transcribe(THREE[0])
    again = RealServer(directory, tmp_path / "server.log", served.port)
    try:
        calls = [Background(lambda: speech.transcribe(THREE[0])) for _ in range(4)]
        assert {call.ended().result.tokens for call in calls} == {before.tokens}
    finally:
        again.kill()


def test_remote_fireredasr_transcripts_equal_pytorch(local: Registry, tmp_path: Path) -> None:
    """Alone at last: the other model's server has been killed."""
    choices = ({}, {"max_new_tokens": 40, "min_new_tokens": 10})
    served = RealServer(served_directory(assets() / "demo-fireredasr", "fireredasr"), tmp_path / "server.log")
    try:
        session = opened(served, "fireredasr")
        far = [transcript for options in choices for transcript in session.transcribe_batch(THREE, **options)]
        session.close()
    finally:
        served.kill()
    with local.open(assets() / "demo-fireredasr", "pytorch") as session:
        here = [transcript for options in choices for transcript in session.transcribe_batch(THREE, **options)]
    for theirs, ours in zip(far, here, strict=True):
        assert theirs.tokens == ours.tokens and theirs.segments == ours.segments and theirs.notes == ours.notes
