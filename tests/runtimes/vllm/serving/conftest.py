from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def original_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of a fake original handler of vLLM; the test's patch is undone at the end."""
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat

    from workbench.runtimes.vllm.serving.chat_route import METHOD

    calls: list[Any] = []

    async def create_chat_completion(self: Any, request: Any, raw_request: Any = None) -> str:
        calls.append(request)
        return "vllm"

    monkeypatch.setattr(OpenAIServingChat, METHOD, create_chat_completion)
    return calls
