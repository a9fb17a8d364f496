"""The chat route for SpeechLM in vLLM's server, with a fake model: answers, errors and disconnecting clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM")

from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat

from tests.support.coroutines import finished
from tests.support.fake_conversations import fake_conversation
from workbench.core.errors import BadInput, SessionDied
from workbench.runtimes.vllm.serving import chat_route
from workbench.runtimes.vllm.serving.chat_route import ARCHITECTURE, METHOD, ChatRoute, teach_conversations

ASK = {"messages": [{"role": "user", "content": "say three"}]}


class FakeConversations:
    """Answers as a made-up model does; fails after so many events."""

    def __init__(self, fails_after: int | None = None, error: Exception | None = None):
        self.fails_after, self.error = fails_after, error
        self.begun = self.closed = 0

    async def events(self, messages: Any, options: Any) -> AsyncGenerator[Any, None]:
        self.begun += 1
        try:
            for number, event in enumerate(fake_conversation().converse_stream(messages, **options)):
                if number == self.fails_after and self.error:
                    raise self.error
                await asyncio.sleep(0)
                yield event
        finally:
            self.closed += 1


def answer(conversations: Any, body: Any) -> Any:
    """What the route returns; of a stream, all its text."""

    async def asked() -> Any:
        found = await ChatRoute(["far"], conversations).answer(body)
        return "".join([text async for text in found]) if hasattr(found, "__aiter__") else found

    return finished(asked())


def test_whole_answer_and_streamed_answer_have_the_same_transcript() -> None:
    conversations = FakeConversations()
    whole = answer(conversations, {**ASK, "modalities": ["text", "audio"]}).model_dump()
    assert whole["object"] == "chat.completion" and whole["choices"][0]["message"]["audio"]["data"]
    text = answer(conversations, {**ASK, "modalities": ["text", "audio"], "stream": True})
    *chunks, done, nothing = text.split("\n\n")
    assert done == "data: [DONE]" and nothing == ""
    found = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
    words = "".join((each["choices"][0]["delta"].get("audio") or {}).get("transcript", "") for each in found)
    assert words == whole["choices"][0]["message"]["audio"]["transcript"]
    assert conversations.begun == conversations.closed == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("after", "error", "status"), [(1, BadInput("no"), 400), (0, SessionDied("gone"), 500)])
def test_an_error_before_the_first_token_has_a_status(stream: bool, after: int, error: Any, status: int) -> None:
    found = answer(FakeConversations(after, error), {**ASK, "stream": stream})
    assert found.error.code == status and found.model_dump()["error"]["message"] == str(error)


def test_unsupported_request_is_refused_before_generation_starts() -> None:
    conversations = FakeConversations()
    found = answer(conversations, {**ASK, "n": 2})
    assert found.model_dump() == {
        "error": {
            "message": "n is 2, and a request has one answer; send several requests",
            "type": "invalid_request_error",
            "param": "n",
            "code": "unsupported_value",
        }
    }
    assert conversations.begun == 0


def test_an_error_in_the_middle_ends_the_stream() -> None:
    text = answer(FakeConversations(6, SessionDied("the engine has ended")), {**ASK, "stream": True})
    last = text.strip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error" and "[DONE]" not in text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_closes_the_conversation(stream: bool) -> None:
    conversations = FakeConversations()

    async def left() -> None:
        route = ChatRoute(["far"], conversations)  # type: ignore[arg-type]
        asking = asyncio.create_task(route.answer({**ASK, "modalities": ["audio"], "stream": stream}))
        if stream:
            found = await asking
            await anext(found)
            await found.aclose()
            return
        while not conversations.begun:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    finished(left())
    assert conversations.begun == conversations.closed == 1


def handler(its_class: type, architecture: str) -> Any:
    found = its_class.__new__(its_class)
    found.model_config = SimpleNamespace(hf_config=SimpleNamespace(architectures=[architecture]), model="/nowhere")
    return found


def test_other_models_and_other_routes_are_left_to_vllm(own: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(OpenAIServingChat):
        """Such as Anthropic's messages."""

    teach_conversations()
    taught = getattr(OpenAIServingChat, METHOD)
    teach_conversations()
    assert getattr(OpenAIServingChat, METHOD) is taught, "once is enough"
    conversations = FakeConversations()
    monkeypatch.setattr(chat_route, "_route_of", lambda _: ChatRoute(["far"], conversations))  # type: ignore[arg-type]

    async def body() -> Any:
        return ASK

    raw = SimpleNamespace(json=body)
    assert finished(taught(handler(OpenAIServingChat, "Qwen3ForCausalLM"), 1, raw)) == "vllm"
    assert finished(taught(handler(Other, ARCHITECTURE), 2, raw)) == "vllm"
    assert finished(taught(handler(OpenAIServingChat, ARCHITECTURE), 3)) == "vllm"
    found = finished(taught(handler(OpenAIServingChat, ARCHITECTURE), 4, raw))
    assert own == [1, 2, 3] and found.model_dump()["object"] == "chat.completion"


def test_vllm_version_with_another_method_signature_is_not_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def other(self: Any, body: Any) -> None: ...

    said: list[str] = []
    monkeypatch.setattr(OpenAIServingChat, METHOD, other)
    monkeypatch.setattr(chat_route.logger, "warning_once", lambda text, *_: said.append(text))
    teach_conversations()
    assert getattr(OpenAIServingChat, METHOD) is other and "answer without speech" in said[0]
