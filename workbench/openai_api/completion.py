"""Completions of OpenAI's API: reads the request, a text to continue, and writes the answer, the continuation."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from workbench.openai_api.chat_request import ABOUT_THE_CALLER, read_flag, read_include_usage, unknown_field
from workbench.openai_api.errors import Refusal
from workbench.openai_api.logprobs import completion_logprobs, read_completion_logprobs
from workbench.openai_api.stopping import read_stops
from workbench.session.values import Piece

OWN_FIELDS = ("model", "prompt", "max_tokens", "stop", "stream", "stream_options", "logprobs")
UNFOLLOWED: Mapping[str, tuple[Sequence[Any], str]] = {
    "n": ((1,), "a request has one answer; send several requests"),
    "best_of": ((1,), "a request has one answer; send several requests"),
    "echo": ((False,), "the answer is what follows the prompt"),
    "suffix": (("",), "the text goes on at its end"),
    "logit_bias": (({},), "these models take no biases"),
    "frequency_penalty": ((0,), "these models take repetition_penalty in its place"),
    "presence_penalty": ((0,), "these models take repetition_penalty in its place"),
}
USUAL_TOKENS = 16  # OpenAI's limit where a request sets none


@dataclass(frozen=True)
class CompletionRequest:
    """A request with a valid form; the values of options are checked later."""

    model: str
    prompt: str
    options: Mapping[str, Any]
    stops: tuple[str, ...] = ()
    logprobs: int | None = None  # alternatives for each token; None for no log-probabilities
    stream: bool = False
    include_usage: bool = False
    id: str = field(default_factory=lambda: f"cmpl-{uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))


def read_completion_request(body: Mapping[str, Any], options: Collection[str]) -> CompletionRequest:
    """Returns the request in a body of JSON; raises `Refusal` for anything that cannot be followed.

    Args:
        options: the names of the model's options.
    """
    fields = {name: value for name, value in body.items() if value is not None}
    for name, value in fields.items():
        if name in UNFOLLOWED and name not in options:
            harmless, why = UNFOLLOWED[name]
            if not any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in harmless):
                raise Refusal(f"{name} is {value!r:.80}, and {why}", name, "unsupported_value")
        elif name not in {*OWN_FIELDS, *ABOUT_THE_CALLER, *options}:
            raise unknown_field(name, [*OWN_FIELDS, *options])
    stream = read_flag(fields, "stream")
    max_tokens = fields.get("max_tokens", USUAL_TOKENS)
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
        raise Refusal(f"max_tokens is {max_tokens!r:.80}; expected a whole number of at least 1", "max_tokens")
    chosen = {name: fields[name] for name in options if name in fields}
    return CompletionRequest(
        model=str(fields.get("model")),
        prompt=_prompt(fields.get("prompt")),
        options={"max_new_tokens": max_tokens, **chosen},
        stops=read_stops(fields.get("stop")),
        logprobs=read_completion_logprobs(fields.get("logprobs")),
        stream=stream,
        include_usage=read_include_usage(fields, stream),
    )


def _prompt(prompt: Any) -> str:
    if isinstance(prompt, list) and len(prompt) == 1:
        [prompt] = prompt
    if isinstance(prompt, list) and prompt and all(isinstance(each, str) for each in prompt):
        raise Refusal(f"prompt has {len(prompt)} texts, and a request has one answer; send several requests", "prompt")
    if not isinstance(prompt, str):
        raise Refusal(f"prompt is {prompt!r:.80}; expected a text", "prompt", "invalid_type")
    return prompt


def completion_chunk(
    request: CompletionRequest, text: str, pieces: Sequence[Piece] = (), finish: str | None = None, offset: int = 0
) -> dict[str, Any]:
    """Returns a part of a completion, or a whole completion; both have the same form.

    Args:
        pieces: the tokens of the part, for their log-probabilities.
        offset: the characters of the completion before this part.
    """
    logprobs = None if request.logprobs is None or not pieces else completion_logprobs(pieces, request.logprobs, offset)
    choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
    return {**_frame(request), "choices": [choice]}


def completion_usage(request: CompletionRequest, prompt_tokens: int, tokens: int) -> dict[str, Any]:
    """Returns the last event of a stream, which states the usage."""
    return {**_frame(request), "choices": [], "usage": usage_of(prompt_tokens, tokens)}


def usage_of(prompt_tokens: int, tokens: int) -> dict[str, int]:
    """Returns the numbers of tokens of prompt and answer, and their sum."""
    return {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}


def _frame(request: CompletionRequest) -> dict[str, Any]:
    return {"id": request.id, "object": "text_completion", "created": request.created, "model": request.model}
