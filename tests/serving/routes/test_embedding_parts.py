"""Embeddings as parts of a chat: the places that they and the placeholders of the text name, and refusals."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.support.fake_chat import FakeChatRegistry
from workbench.core.errors import BadInput
from workbench.embeddings import write_embedding
from workbench.families.language.directory import PLACEHOLDER


def part(value: float) -> dict[str, Any]:
    data = write_embedding(np.full((2, 4), value, np.float32), None, "npy")
    return {"type": "embedding", "embedding": {"data": base64.b64encode(data).decode(), "encoding": "npy"}}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


ONE, TWO = part(1.0), part(2.0)


@pytest.fixture
def read(http: TestClient, registry: FakeChatRegistry, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns what a language model would read of messages: their texts and the values of the embeddings; or the
    refusal.
    """
    seen: list[Any] = []

    def generate_stream(writer: Any, messages: Any, embeddings: Any = (), **options: Any) -> Iterator[Any]:
        seen.append(([each["content"] for each in messages], [float(each.values[0, 0]) for each in embeddings]))
        raise BadInput("the model has read it")
        yield

    monkeypatch.setattr(type(registry.writer), "generate_stream", generate_stream, raising=False)

    def send(*contents: Any) -> Any:
        seen.clear()
        messages = [{"role": "user", "content": content} for content in contents]
        answer = http.post("/v1/chat/completions", json={"model": "fake/words", "messages": messages})
        return seen[0] if seen else answer.json()["error"]["message"]

    return send


def test_embeddings_stand_at_their_parts_or_at_the_placeholders_of_the_text(read: Any) -> None:
    expected = [f"a {PLACEHOLDER} b {PLACEHOLDER}"], [1.0, 2.0]
    assert read([text("a "), ONE, text(" b "), TWO]) == expected
    assert read([text(f"a {PLACEHOLDER} b {PLACEHOLDER}"), ONE, TWO]) == expected
    assert read([ONE, text(f"a {PLACEHOLDER}"), TWO, text(f" b {PLACEHOLDER}")]) == expected
    assert read([text(f"{PLACEHOLDER} c"), ONE], "d", [TWO, text("e")]) == (
        [f"{PLACEHOLDER} c", "d", f"{PLACEHOLDER}e"],
        [1.0, 2.0],
    )


def test_another_number_of_placeholders_than_embeddings_is_refused(read: Any) -> None:
    assert read("first", [text(f"a {PLACEHOLDER}"), ONE, TWO]) == (
        f"the text of messages[1] holds the placeholder {PLACEHOLDER} once and comes with 2 embeddings; expected one "
        "for each, or none in the text"
    )


def test_parts_that_a_language_model_does_not_take_are_refused(http: TestClient) -> None:
    """vLLM's own parts of embeddings are among them."""
    messages = [{"role": "user", "content": [{"type": "prompt_embeds", "data": "x"}]}]
    for model, expected in (("fake/words", "text or embedding"), ("fake/speech", "text or input_audio")):
        answer = http.post("/v1/chat/completions", json={"model": model, "messages": messages})
        assert answer.json()["error"]["message"] == (
            f"messages[0].content[0] is of type 'prompt_embeds'; expected {expected}"
        )
