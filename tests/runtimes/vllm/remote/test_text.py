"""Language-model sessions on a fake server with scripted answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtimes.vllm.remote.fake_server import (
    CHAT,
    COMPLETIONS,
    DONE,
    END,
    MODEL,
    FakeServer,
    Reply,
    as_json,
    chat_events,
    event,
)
from workbench.core.errors import BadInput, SessionDied, Unavailable
from workbench.core.settings import Server, SessionSpec
from workbench.embeddings import read_embedding
from workbench.families.language.directory import PLACEHOLDER
from workbench.runtimes.vllm.embedding_parts.content_part import NOTHING, PLACE, read_part
from workbench.runtimes.vllm.remote import open_session
from workbench.runtimes.vllm.remote.text import RemoteTextSession
from workbench.session.calls import call_of
from workbench.session.conversation import Answer
from workbench.session.protocols import Transcribes
from workbench.session.values import Alternative, Generation, Piece

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def open_text(server: Server) -> RemoteTextSession:
    session = open_session(SessionSpec("mine", "causal_lm", "vllm", Path(), server=server))
    assert isinstance(session, RemoteTextSession)
    return session


@pytest.fixture
def session(server: Server) -> Iterator[RemoteTextSession]:
    session = open_text(server)
    yield session
    session.close()


def request_body(fake: FakeServer, path: str) -> Any:
    [body] = [body for route, body in fake.requests if route == path]
    return body


def test_text_prompt_is_sent_as_a_user_message_and_the_answer_is_streamed(
    session: RemoteTextSession, fake: FakeServer
) -> None:
    events = list(session.generate_stream("count", system="Be brief.", thinking=False, max_new_tokens=20))
    *pieces, generation = events
    assert [piece for piece in pieces if piece.tokens or piece.text] == [
        Piece("one", (1,)),
        Piece(" two", (2,)),
        Piece("", (END,)),
    ]
    assert isinstance(generation, Generation)
    assert (generation.text, generation.tokens, generation.finish) == ("one two", (1, 2, END), "stop")
    assert (generation.prompt_tokens, generation.model, generation.runtime) == (5, "mine", "vllm")
    assert 0 < generation.first_token_seconds <= generation.compute_seconds
    body = request_body(fake, CHAT)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "count"}]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert (body["model"], body["max_tokens"], body["stop_token_ids"]) == (MODEL, 20, [END])


def test_a_conversation_is_sent_as_it_is(session: RemoteTextSession, fake: FakeServer) -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    session.generate(talk)
    assert request_body(fake, CHAT)["messages"] == talk


def test_conversation_answer_has_text_tokens_and_settings_and_refuses_audio(
    session: RemoteTextSession, fake: FakeServer
) -> None:
    *_, answer = session.converse_stream([{"role": "user", "content": [{"type": "text", "text": "a"}]}], top_k=3)
    assert isinstance(answer, Answer) and (answer.text, answer.token_ids) == ("one two", (1, 2, END))
    assert (answer.finish, answer.prompt_rows, answer.settings["top_k"]) == ("stop", 5, 3)
    assert request_body(fake, CHAT)["messages"] == [{"role": "user", "content": "a"}]
    with pytest.raises(BadInput, match="message 1, part 1: it is sound, and mine reads text only"):
        session.converse([{"role": "user", "content": [{"type": "audio", "audio": "a.wav"}]}])


@pytest.mark.parametrize(("chat", "expected"), [(True, 5), (False, 3)])
def test_first_streamed_piece_contains_the_number_of_prompt_tokens(
    session: RemoteTextSession, chat: bool, expected: int
) -> None:
    first = next(item for item in session.generate_stream("count", chat=chat) if isinstance(item, Piece) and item.text)
    assert first.prompt_tokens == expected, "a caller that stops here has not read the usage"


def test_plain_prompt_is_sent_to_the_completions_route(session: RemoteTextSession, fake: FakeServer) -> None:
    generation = session.generate("one, two,", chat=False, temperature=0.5, seed=3)
    assert (generation.text, generation.tokens) == ("one two", (1, 2))
    assert (generation.finish, generation.prompt_tokens) == ("length", 3)
    body = request_body(fake, COMPLETIONS)
    assert (body["prompt"], body["temperature"], body["seed"]) == ("one, two,", 0.5, 3)
    assert "messages" not in body and "chat_template_kwargs" not in body


def test_server_without_chat_template_gets_plain_prompts_and_no_conversations(server: Server, fake: FakeServer) -> None:
    del fake.answers[CHAT]
    session = open_text(server)
    assert session.generate("one, two,").text == "one two"
    with pytest.raises(BadInput, match="mine has no chat template; give the prompt as one text"):
        session.generate([{"role": "user", "content": "a"}])
    session.close()


def test_server_without_completions_route_gets_only_chat_requests(server: Server, fake: FakeServer) -> None:
    del fake.answers[COMPLETIONS]
    session = open_text(server)
    assert session.generate("one, two,").text == "one two"
    with pytest.raises(BadInput, match=f"does not offer {COMPLETIONS} for {MODEL}; turn option chat on"):
        session.generate("one, two,", chat=False)
    session.close()


@pytest.mark.parametrize("prompt, message", [("  ", "the prompt is empty"), ([{"role": "user"}], "has no content")])
def test_invalid_prompt_is_refused(session: RemoteTextSession, prompt: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        session.generate(prompt)


def test_server_without_token_ids_gives_text_without_tokens(session: RemoteTextSession, fake: FakeServer) -> None:
    plain = [piece.replace(b'"token_ids": ', b'"others": ') for piece in chat_events([(1, "one")])]
    fake.answers[CHAT] = lambda *_: Reply(pieces=plain)
    generation = session.generate("count")
    assert (generation.text, generation.tokens) == ("one", ())


def alternatives_events(*steps: dict[str, float]) -> list[bytes]:
    """The events of a chat with one token and its alternatives each."""
    events = []
    for number, (step, piece) in enumerate(zip(steps, ("one", " two")), 1):
        alternatives = [{"token": token, "logprob": value} for token, value in step.items()]
        logprobs = {"content": [{"token": f"token_id:{number}", "top_logprobs": alternatives}]}
        choice = {"index": 0, "delta": {"content": piece}, "token_ids": [number], "logprobs": logprobs}
        events.append(event({"choices": [choice]}))
    return [*events, event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}), DONE]


def test_alternatives_have_ids_and_detokenised_texts(session: RemoteTextSession, fake: FakeServer) -> None:
    steps = {"token_id:1": -0.5, "token_id:9": -9999.0, "token_id:2": -1.5}, {"token_id:1": -2.0, "token_id:2": -0.25}
    fake.answers[CHAT] = lambda *_: Reply(pieces=alternatives_events(*steps))
    *pieces, generation = session.generate_stream("count", alternatives=1)
    assert isinstance(generation, Generation)
    assert generation.alternatives == ((Alternative(1, "one", -0.5),), (Alternative(2, " two", -0.25),))
    text_pieces = [piece for piece in pieces if isinstance(piece, Piece) and piece.text]
    assert [piece.alternatives for piece in text_pieces] == list(generation.alternatives)
    assert (request_body(fake, CHAT)["top_logprobs"], request_body(fake, CHAT)["logprobs"]) == (2, True)
    alternatives = session.generate("count", alternatives=3).alternatives
    assert [alternative.id for alternative in alternatives[0]] == [1, 2], "impossible tokens are left out"
    assert len([path for path, _ in fake.requests if path == "/detokenize"]) == 2, "each token is detokenised once"


def test_alternatives_named_by_text_have_id_minus_one(session: RemoteTextSession, fake: FakeServer) -> None:
    completion = {"choices": [{"text": "one", "logprobs": {"top_logprobs": [{"one": -0.5, "uno": -1.5}]}}]}
    fake.answers[COMPLETIONS] = lambda *_: Reply(pieces=[event(completion), DONE])
    [step] = session.generate("count", alternatives=2, chat=False).alternatives
    assert step == (Alternative(-1, "one", -0.5), Alternative(-1, "uno", -1.5))


def test_alternatives_on_a_server_without_logprobs_are_unavailable(session: RemoteTextSession) -> None:
    with pytest.raises(Unavailable, match=r"does not return the likeliest tokens of each step; set alternatives to 0"):
        session.generate("count", alternatives=2)


def test_closing_the_stream_closes_the_connection(session: RemoteTextSession, fake: FakeServer) -> None:
    fake.answers[CHAT] = lambda *_: Reply(pieces=chat_events([(1, "one")])[:2], then="wait")
    with contextlib.closing(session.generate_stream("count")) as stream:
        assert next(piece for piece in stream if piece.text).text == "one"
    assert fake.disconnected.wait(60)


def test_broken_stream_raises_session_died(session: RemoteTextSession, fake: FakeServer) -> None:
    fake.answers[CHAT] = lambda *_: Reply(pieces=chat_events([(1, "one")])[:2], then="drop")
    with pytest.raises(SessionDied, match="before its answer was complete"):
        session.generate("count")


def test_remote_text_session_refuses_transcription_and_traces(session: RemoteTextSession) -> None:
    assert not isinstance(session, Transcribes)
    with pytest.raises(BadInput, match="mine writes text; to transcribe, open a speech model"):
        call_of(session, "stream")
    with pytest.raises(Unavailable, match="a remote server does not show its stages"):
        session.trace("count")


def test_call_on_a_closed_session_raises_an_error(session: RemoteTextSession) -> None:
    session.close()
    with pytest.raises(BadInput, match="the session of mine is closed"):
        session.generate("count")


# Embeddings in place of placeholders.


def answer_with_embeddings(_: FakeServer, body: Any) -> Reply:
    """The answer of a server with the project's plugin."""
    parts = [part for message in body["messages"] for part in message["content"] if isinstance(part, dict)]
    if any(part["type"] == "embedding" and "embedding" not in part for part in parts):
        return as_json({"error": {"message": NOTHING, "type": "BadRequestError", "code": 400}}, 400)
    return Reply(pieces=chat_events([(1, "one"), (2, " two")]))


def test_embeddings_replace_their_placeholders_in_a_conversation(session: RemoteTextSession, fake: FakeServer) -> None:
    fake.answers[CHAT] = answer_with_embeddings
    talk = [
        {"role": "user", "content": f"a {PLACEHOLDER}{PLACEHOLDER}"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": f"{PLACEHOLDER} c"},
    ]
    embeddings = [ROWS, ROWS + 1, ROWS + 2]
    assert session.generate(talk, embeddings=embeddings).tokens == (1, 2, END)
    first, middle, last = [body for path, body in fake.requests if path == CHAT][-1]["messages"]
    assert middle == talk[1] and (first["role"], first["content"][0]) == ("user", {"type": "text", "text": "a "})
    assert [part["type"] for part in (*first["content"], *last["content"])] == [
        "text",
        "embedding",
        "embedding",
        "embedding",
        "text",
    ]
    sent_parts = [read_part(part) for part in (*first["content"][1:], last["content"][0])]
    for (data, encoding, _), rows in zip(sent_parts, embeddings, strict=True):
        np.testing.assert_array_equal(read_embedding(data, encoding=encoding).values, rows)


def test_placeholder_text_of_the_server_model_is_used(session: RemoteTextSession, fake: FakeServer) -> None:
    def answer(server: FakeServer, body: Any) -> Reply:
        reply = answer_with_embeddings(server, body)
        return (
            as_json({"error": {"message": f'{NOTHING}{PLACE}"<|image_pad|>"', "code": 400}}, 400)
            if not reply.pieces
            else reply
        )

    fake.answers[CHAT] = answer
    assert session.generate(f"{PLACEHOLDER} and <|image_pad|>", embeddings=[ROWS]).tokens == (1, 2, END)
    [message] = [body for path, body in fake.requests if path == CHAT][-1]["messages"]
    text, embedding = message["content"]
    assert (text, embedding["type"]) == ({"type": "text", "text": f"{PLACEHOLDER} and "}, "embedding")
    session.generate(f"What is {PLACEHOLDER}", embeddings=[ROWS])
    [message] = [body for path, body in fake.requests if path == CHAT][-1]["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "embedding"]
    with pytest.raises(
        BadInput, match=r"^the prompt holds the placeholder <\|image_pad\|> nowhere and comes with 1 emb"
    ):
        session.generate("no place", embeddings=[ROWS])


def test_embeddings_are_refused_without_server_support_or_matching_placeholders(
    session: RemoteTextSession, fake: FakeServer
) -> None:
    unknown = {"error": {"message": "Unsupported chat content part type: 'embedding'", "code": 400}}
    fake.answers[CHAT] = lambda *_: as_json(unknown, 400)
    with pytest.raises(Unavailable, match=r"takes no embeddings in the chats of org/model; start it on a machine with"):
        session.generate(f"a {PLACEHOLDER}", embeddings=[ROWS])
    fake.answers[CHAT] = answer_with_embeddings
    with pytest.raises(Unavailable, match="takes embeddings only in conversations; leave option chat on"):
        session.generate(f"a {PLACEHOLDER}", embeddings=[ROWS], chat=False)
    with pytest.raises(BadInput, match="nowhere and comes with 1 embedding"):
        session.generate("a", embeddings=[ROWS])
    with pytest.raises(BadInput, match=r"^embedding 1 has the shape \(3,\)"):
        session.generate(f"a {PLACEHOLDER}", embeddings=[ROWS[0]])
