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
    """Answers with the events of a fake conversation; raises `error` after `fails_after` events."""

    def __init__(self, fails_after: int | None = None, error: Exception | None = None):
        self.fails_after, self.error = fails_after, error
        self.started = self.closed = 0

    async def events(self, messages: Any, options: Any) -> AsyncGenerator[Any, None]:
        self.started += 1
        try:
            for number, event in enumerate(fake_conversation().converse_stream(messages, **options)):
                if number == self.fails_after and self.error:
                    raise self.error
                await asyncio.sleep(0)
                yield event
        finally:
            self.closed += 1


def answer(conversations: Any, body: Any) -> Any:
    """The answer of the route; the complete text if it is a stream."""

    async def run() -> Any:
        result = await ChatRoute(["far"], conversations).answer(body)
        return "".join([text async for text in result]) if hasattr(result, "__aiter__") else result

    return finished(run())


def test_whole_answer_and_streamed_answer_have_the_same_transcript() -> None:
    conversations = FakeConversations()
    full = answer(conversations, {**ASK, "modalities": ["text", "audio"]}).model_dump()
    assert full["object"] == "chat.completion" and full["choices"][0]["message"]["audio"]["data"]
    text = answer(conversations, {**ASK, "modalities": ["text", "audio"], "stream": True})
    *chunks, last, empty = text.split("\n\n")
    assert last == "data: [DONE]" and empty == ""
    events = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
    words = "".join((event["choices"][0]["delta"].get("audio") or {}).get("transcript", "") for event in events)
    assert words == full["choices"][0]["message"]["audio"]["transcript"]
    assert conversations.started == conversations.closed == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("event_count", "error", "status"), [(1, BadInput("no"), 400), (0, SessionDied("gone"), 500)])
def test_an_error_before_the_first_token_has_a_status(stream: bool, event_count: int, error: Any, status: int) -> None:
    result = answer(FakeConversations(event_count, error), {**ASK, "stream": stream})
    assert result.error.code == status and result.model_dump()["error"]["message"] == str(error)


def test_unsupported_request_is_refused_before_generation_starts() -> None:
    conversations = FakeConversations()
    result = answer(conversations, {**ASK, "n": 2})
    assert result.model_dump() == {
        "error": {
            "message": "n is 2, and a request has one answer; send several requests",
            "type": "invalid_request_error",
            "param": "n",
            "code": "unsupported_value",
        }
    }
    assert conversations.started == 0


def test_an_error_in_the_middle_ends_the_stream() -> None:
    text = answer(FakeConversations(6, SessionDied("the engine has ended")), {**ASK, "stream": True})
    last = text.strip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error" and "[DONE]" not in text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_closes_the_conversation(stream: bool) -> None:
    conversations = FakeConversations()

    async def leave() -> None:
        route = ChatRoute(["far"], conversations)  # type: ignore[arg-type]
        task = asyncio.create_task(route.answer({**ASK, "modalities": ["audio"], "stream": stream}))
        if stream:
            events = await task
            await anext(events)
            await events.aclose()
            return
        while not conversations.started:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    finished(leave())
    assert conversations.started == conversations.closed == 1


def handler(its_class: type, architecture: str) -> Any:
    instance = its_class.__new__(its_class)
    instance.model_config = SimpleNamespace(hf_config=SimpleNamespace(architectures=[architecture]), model="/nowhere")
    return instance


def test_other_models_and_other_routes_are_left_to_vllm(
    original_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class OtherRoute(OpenAIServingChat):
        """Another handler, such as the one of Anthropic's messages."""

    teach_conversations()
    method = getattr(OpenAIServingChat, METHOD)
    teach_conversations()
    assert getattr(OpenAIServingChat, METHOD) is method, "the method is patched only once"
    conversations = FakeConversations()
    monkeypatch.setattr(chat_route, "_route_of", lambda _: ChatRoute(["far"], conversations))  # type: ignore[arg-type]

    async def body() -> Any:
        return ASK

    raw = SimpleNamespace(json=body)
    assert finished(method(handler(OpenAIServingChat, "Qwen3ForCausalLM"), 1, raw)) == "vllm"
    assert finished(method(handler(OtherRoute, ARCHITECTURE), 2, raw)) == "vllm"
    assert finished(method(handler(OpenAIServingChat, ARCHITECTURE), 3)) == "vllm"
    result = finished(method(handler(OpenAIServingChat, ARCHITECTURE), 4, raw))
    assert original_calls == [1, 2, 3] and result.model_dump()["object"] == "chat.completion"


def test_vllm_version_with_another_method_signature_is_not_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def other_method(self: Any, body: Any) -> None: ...

    warnings: list[str] = []
    monkeypatch.setattr(OpenAIServingChat, METHOD, other_method)
    monkeypatch.setattr(chat_route.logger, "warning_once", lambda text, *_: warnings.append(text))
    teach_conversations()
    assert getattr(OpenAIServingChat, METHOD) is other_method and "answer without speech" in warnings[0]
