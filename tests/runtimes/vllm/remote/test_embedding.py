"""Chat messages with embeddings, and detection of servers that accept them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.vllm.remote.fake_server import CHAT, COMPLETIONS, MODEL, FakeServer, as_json
from workbench.core.errors import BadInput
from workbench.embeddings import read_embedding
from workbench.runtimes.vllm.embedding_parts.content_part import read_part
from workbench.runtimes.vllm.remote.client import Client
from workbench.runtimes.vllm.remote.embedding import message_content, placeholder_there
from workbench.runtimes.vllm.remote.service import Service

PAD = "<|fim_pad|>"
CHATS = Service(MODEL, frozenset({CHAT}), (), True)


@given(texts=st.lists(st.sampled_from(["", "a", "two words\n"]), min_size=1, max_size=5))
def test_each_placeholder_is_replaced_by_its_embedding_part(texts: list[str]) -> None:
    embeddings = [np.full((2, 3), number, dtype=np.float32) for number in range(len(texts) - 1)]
    parts = message_content(PAD.join(texts), embeddings, PAD)
    text = ""
    for part in parts:
        text += part["text"] if part["type"] == "text" else PAD
        assert part.get("text") != ""
    assert text == PAD.join(texts)
    contents = [read_part(part)[0] for part in parts if part["type"] == "embedding"]
    for data, embedding in zip(contents, embeddings, strict=True):
        np.testing.assert_array_equal(read_embedding(data).values, embedding)


@pytest.mark.parametrize(
    "text, count, message",
    [
        (
            "a",
            1,
            "the prompt holds the placeholder <|fim_pad|> nowhere and comes with 1 embedding; expected one for each",
        ),
        (PAD, 0, "once and comes with no embeddings"),
        (PAD, 2, "once and comes with 2 embeddings"),
        (PAD + PAD, 1, "2 times and comes with 1 embedding;"),
    ],
)
def test_number_of_placeholders_that_differs_from_the_embeddings_is_refused(
    text: str, count: int, message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        message_content(text, [np.zeros((1, 2), np.float32)] * count, PAD)
    assert message in str(caught.value)


def refusal(message: Any) -> Any:
    return {"error": {"message": message, "type": "BadRequestError", "code": 400}}


def refusal_message(placeholder: str) -> str:
    """The error message of a server whose model has this placeholder."""
    with pytest.raises(BadInput) as caught:
        read_part({"type": "embedding"}, placeholder)
    return str(caught.value)


@pytest.mark.parametrize(
    "content, status, placeholder",
    [
        (refusal("a content part of type embedding has no embedding; expected {...}"), 400, PAD),
        (refusal(refusal_message('<|"image pad"|>')), 400, '<|"image pad"|>'),
        (refusal(refusal_message("<｜填充｜>") + " at once"), 400, "<｜填充｜>"),
        (refusal("Unsupported chat content part type: 'embedding'. Supported types: text."), 400, None),
        (refusal("8 validation errors for ValidatorIterator"), 400, None),
        (refusal(None), 500, None),
        ({"error": "no"}, 400, None),
        ({"choices": [{"message": {"content": "Hello!"}}]}, 200, None),
        ([], 200, None),
    ],
)
def test_placeholder_is_detected_from_the_refusal_of_an_empty_embedding_part(
    content: Any, status: int, placeholder: str | None, client: Client, fake: FakeServer
) -> None:
    requests: list[Any] = []

    def answer(_: FakeServer, body: Any) -> Any:
        requests.append(body)
        return as_json(content, status)

    fake.answers[CHAT] = answer
    assert placeholder_there(client, CHATS) == placeholder
    [body] = requests
    assert body["messages"] == [{"role": "user", "content": [{"type": "embedding"}]}]
    with pytest.raises(BadInput) as caught:
        read_part(body["messages"][0]["content"][0])
    assert not placeholder or content["error"]["message"].startswith(str(caught.value).split(";")[0])


def test_server_without_chat_route_accepts_no_embeddings(client: Client, fake: FakeServer) -> None:
    fake.answers.clear()
    assert placeholder_there(client, Service(MODEL, frozenset({COMPLETIONS}), (), False)) is None
