"""Bodies of JSON in the classes that vLLM's chat route sends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import PrivateAttr
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionResponse
from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse, UsageInfo


class WholeReply(ChatCompletionResponse):
    """A whole answer."""

    _body: Mapping[str, Any] = PrivateAttr()

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> WholeReply:
        """Returns the reply with this body."""
        reply = cls(model=body["model"], choices=[], usage=UsageInfo())
        reply._body = body
        return reply

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Returns the body."""
        return dict(self._body)


class ErrorReply(ErrorResponse):
    """An error. The status stands in vLLM's class, and OpenAI's code of the error in the body."""

    _body: Mapping[str, Any] = PrivateAttr()

    @classmethod
    def from_body(cls, status: int, body: Mapping[str, Any]) -> ErrorReply:
        """Returns the reply with this status of HTTP and this body."""
        reply = cls(error=ErrorInfo(message=body["error"]["message"], type=body["error"]["type"], code=status))
        reply._body = body
        return reply

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Returns the body."""
        return dict(self._body)
