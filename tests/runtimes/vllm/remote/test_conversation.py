"""A SpeechLM on a remote server: requests and answers, compared with a local session behind the same protocol."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.runtimes.vllm.remote.fake_server import CHAT, DONE, MODEL, FakeServer, Reply, as_json, chat_events, event
from tests.support.fake_conversations import fake_conversation
from tests.support.tiny_checkpoints import noise
from workbench.core.errors import BadInput, SessionDied, Unavailable, WorkbenchError
from workbench.core.options import option_specs
from workbench.core.settings import Server, SessionSpec
from workbench.families.speechlm.model import SpeechLmOptions
from workbench.openai_api.chat_answer import ChatAnswer, error_event
from workbench.openai_api.chat_request import read_chat_request
from workbench.openai_api.errors import error_answer
from workbench.openai_api.kept_answers import KeptAnswers
from workbench.registry.registry import Registry
from workbench.runtimes.vllm.remote import open_session
from workbench.runtimes.vllm.remote.conversation import RemoteConversationSession
from workbench.runtimes.vllm.remote.service import ROUTES
from workbench.session.conversation import AnswerStart, AudioPiece
from workbench.session.protocols import Converses, Transcribes
from workbench.session.values import Piece

NAMES = [spec.name for spec in option_specs(SpeechLmOptions)]
ASK = [{"role": "user", "content": "say three"}]
SOUND = {"role": "user", "content": [{"type": "audio", "audio": noise(1.0)}]}


def serve(fake: FakeServer, body: Any) -> Reply:
    """The answer that a server of this project gives to a request."""
    answers = KeptAnswers()
    try:
        request = read_chat_request(body, [MODEL], NAMES, answers)
        writing = ChatAnswer(request, answers)
        events = list(fake_conversation().converse_stream(request.messages, **request.options))
    except WorkbenchError as error:
        status, error_body = error_answer(error)
        return as_json(error_body, status)
    return Reply(pieces=[*(event(chunk) for item in events for chunk in writing.chunks(item)), DONE])


@pytest.fixture
def session(server: Server, fake: FakeServer) -> Iterator[RemoteConversationSession]:
    fake.answers[CHAT] = serve
    session = open_session(SessionSpec("mine", "speechlm", "vllm", Path(), server=server))
    assert isinstance(session, RemoteConversationSession)
    yield session
    session.close()


def request_body(fake: FakeServer) -> Any:
    return [body for path, body in fake.requests if path == CHAT][-1]


@pytest.mark.parametrize("modalities", ["text", "audio", "text_audio", "auto"])
def test_remote_answer_equals_the_answer_of_the_local_session(
    modalities: str, session: RemoteConversationSession, fake: FakeServer
) -> None:
    for messages in (ASK, [SOUND]):
        options = {"modalities": modalities, "seed": 4, "probabilities": True}
        start_event, *events, actual = session.converse_stream(messages, **options)
        expected = fake_conversation().converse(messages, **options)
        assert (
            isinstance(start_event, AnswerStart)
            and start_event.prompt_rows == expected.prompt_rows == actual.prompt_rows
        )
        assert (
            start_event.settings == actual.settings == expected.settings
            and start_event.layout == actual.layout == expected.layout
        )
        assert (
            actual.token_ids == expected.token_ids and actual.text == expected.text and actual.finish == expected.finish
        )
        assert actual.notes == expected.notes and (actual.model, actual.runtime) == ("mine", "vllm")
        np.testing.assert_allclose(actual.probabilities, expected.probabilities, atol=1e-6)
        assert (actual.streams is None) == (expected.streams is None)
        if expected.streams is None:
            continue
        np.testing.assert_array_equal(actual.streams, expected.streams)
        np.testing.assert_allclose(actual.audio, np.clip(expected.audio, -1, 1), atol=1e-4)
        rows = [item for item in events if isinstance(item, AudioPiece) and item.streams is not None]
        assert [item.rows for item in rows] == list(range(1, len(expected.streams) + 1))
        assert {item.sample_rate for item in rows} == {16000}
        assert actual.compute_seconds >= actual.first_audio_seconds > 0


def test_request_contains_only_options_set_by_the_user_and_lossless_audio(
    session: RemoteConversationSession, fake: FakeServer
) -> None:
    """Recordings are sent as WAV files without loss."""
    previous = fake_conversation().converse(ASK, modalities="text_audio")
    session.converse([*ASK, previous.message(), SOUND], seed=3, audio_top_k=None, modalities="text")
    body = request_body(fake)
    assert {name: body[name] for name in body if name != "messages"} == {
        "model": MODEL,
        "modalities": "text",
        "seed": 3,
        "audio": {"format": "pcm16"},
        "stream": True,
        "return_token_ids": True,
    }
    [ask, answer, recording] = body["messages"]
    assert ask == {"role": "user", "content": [{"type": "text", "text": "say three"}]}
    assert answer["content"][1]["streams"] == previous.streams.tolist()  # type: ignore[union-attr]
    content = base64.b64decode(recording["content"][0]["input_audio"]["data"])
    samples, rate = soundfile.read(io.BytesIO(content), dtype="float32")
    assert rate == 16000
    np.testing.assert_array_equal(samples, np.asarray(noise(1.0)[0], np.float32))


def test_invalid_options_and_audio_are_refused_before_a_request_is_sent(
    session: RemoteConversationSession, fake: FakeServer
) -> None:
    for options, message in (({"speed": 1}, "mine has no option speed"), ({"seed": "a"}, "option seed of mine is 'a'")):
        with pytest.raises(BadInput, match=message):
            session.converse(ASK, **options)
    silent = [{"role": "user", "content": [{"type": "audio", "audio": (np.zeros(8000, np.float32), 16000)}]}]
    with pytest.raises(BadInput, match=r"message 1, part 1: the recording of 0\.5 s is silent"):
        session.converse(silent)
    assert CHAT not in [path for path, _ in fake.requests]


def test_refusal_of_the_server_is_raised_with_its_message(session: RemoteConversationSession) -> None:
    with pytest.raises(BadInput, match=r"refuses the request \(400\): the conversation is"):
        session.converse([{"role": "user", "content": "x" * 500}])


def test_server_without_speechlm_token_ids_raises_an_error(
    session: RemoteConversationSession, fake: FakeServer
) -> None:
    fake.answers[CHAT] = lambda *_: Reply(pieces=chat_events([(1, "one")]))
    with pytest.raises(WorkbenchError, match="without the ids of a SpeechLM; install this project there as well"):
        session.converse(ASK)


@pytest.mark.parametrize("then", ["end", "drop"])
def test_broken_answer_raises_session_died_and_the_next_call_succeeds(
    then: str, session: RemoteConversationSession, fake: FakeServer
) -> None:
    def answer_partially(server: FakeServer, body: Any) -> Reply:
        pieces = list(serve(server, body).pieces or ())
        failure = error_event(SessionDied("the engine of it has ended")).encode()
        return Reply(pieces=[*pieces[:9], failure] if then == "end" else pieces[:9], then=then)

    fake.answers[CHAT] = answer_partially
    events = []
    with pytest.raises(
        SessionDied, match="has ended; the answer is incomplete" if then == "end" else "closed the conn"
    ):
        events += session.converse_stream(ASK, modalities="audio")
    fake.answers[CHAT] = serve
    assert session.converse(ASK, modalities="audio").streams is not None, "the next call succeeds"


@pytest.mark.parametrize(
    "change",
    [
        {"choices": []},
        {"choices": [{"delta": {"audio": {"data": "no base64!"}}}]},
        {"choices": [{"delta": {"audio": {"data": "QQ=="}}}]},
        {"choices": [{"delta": {}, "token_ids": [1], "streams": [[1, 2], [3, 4]], "x": 0}]},
        {"choices": [{"delta": {}, "finish_reason": "content_filter"}]},
        {"choices": [{"delta": {}, "token_ids": ["a"]}]},
    ],
)
def test_malformed_chunk_raises_one_line_error(
    change: Any, session: RemoteConversationSession, fake: FakeServer
) -> None:
    def answer_malformed(server: FakeServer, body: Any) -> Reply:
        first, *_ = serve(server, body).pieces or ()
        return Reply(pieces=[first, event(change), DONE])

    fake.answers[CHAT] = answer_malformed
    with pytest.raises(WorkbenchError, match=r"answers with an event of another form") as caught:
        session.converse(ASK)
    assert "\n" not in str(caught.value)


def test_closing_the_stream_closes_the_connection_while_waiting(
    session: RemoteConversationSession, fake: FakeServer
) -> None:
    def answer_endlessly(server: FakeServer, body: Any) -> Reply:
        return Reply(pieces=list(serve(server, body).pieces or ())[:20], then="wait")

    fake.answers[CHAT] = answer_endlessly
    with contextlib.closing(session.converse_stream(ASK, modalities="audio")) as stream:
        next(item for item in stream if isinstance(item, AudioPiece))
        assert any(isinstance(item, Piece) and not item.tokens for item in stream), (
            "a waiting stream yields empty pieces, at which it can be closed"
        )
    assert fake.disconnected.wait(60)


def test_remote_session_refuses_traces_calls_after_close_and_servers_without_chat(
    session: RemoteConversationSession, server: Server, fake: FakeServer
) -> None:
    assert isinstance(session, Converses) and not isinstance(session, Transcribes)
    with pytest.raises(Unavailable, match="does not show its stages"):
        session.trace(ASK)
    session.close()
    with pytest.raises(BadInput, match="is closed; open it again"):
        session.converse(ASK)
    for route in ROUTES:
        fake.answers.pop(route, None)
    with pytest.raises(Unavailable, match="does not offer /v1/chat/completions"):
        open_session(SessionSpec("mine", "speechlm", "vllm", Path(), server=server))


def test_conversation_with_a_model_from_the_users_card(
    server: Server, fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers[CHAT] = serve
    source = f'source = {{ server = "{server.url}/v1", model = "{MODEL}" }}'
    (tmp_path / "models.toml").write_text(f'[[model]]\nid = "far/speechlm"\nfamily = "speechlm"\n{source}\n')
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models.toml"))
    with Registry(isolate=False) as registry, registry.open("far/speechlm") as session:
        answer = session.converse(ASK, modalities="text_audio", seed=4)
        expected = fake_conversation().converse(ASK, modalities="text_audio", seed=4)
        assert answer.token_ids == expected.token_ids and answer.model == "far/speechlm"
        second_answer = session.converse([*ASK, answer.message(), SOUND], modalities="text")
        assert (
            second_answer.text
            == fake_conversation().converse([*ASK, expected.message(), SOUND], modalities="text").text
        )
