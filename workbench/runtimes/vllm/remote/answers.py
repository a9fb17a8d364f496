"""Turns the events of a streamed chat, completion or transcription into plain values: OpenAI's format with vLLM's
additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import SessionDied
from workbench.core.settings import Server
from workbench.runtimes.vllm.remote.refusals import shortened, unexpected_answer_error

ENDS = {"stop": "stop", "tool_calls": "stop", "length": "length"}  # this project's names for the reasons


@dataclass(frozen=True)
class TextAddition:
    """The additions of one event."""

    text: str = ""
    ids: tuple[int, ...] = ()  # from vLLM with return_token_ids; other servers send none
    finish: str = ""  # stop or length if the text ends here
    prompt_tokens: int | None = None  # length of the prompt, if the event states it
    steps: tuple[
        tuple[tuple[str, float], ...], ...
    ] = ()  # alternatives of each token with log-probability, if asked for


def read_event(event: Mapping[str, Any], server: Server) -> TextAddition:
    """Returns the additions of an event; raises `WorkbenchError` for a malformed event, or for an aborted text."""
    try:
        usage, choices = event.get("usage"), event.get("choices") or ()
        prompt_tokens = int(usage["prompt_tokens"]) if usage else None
        if not choices:
            return TextAddition(prompt_tokens=prompt_tokens)
        [choice] = choices
        # vLLM sends the ids of the prompt with the first event, and the usage only after the last one.
        prompt_ids = event.get("prompt_token_ids") or choice.get("prompt_token_ids")
        if prompt_tokens is None and prompt_ids:
            prompt_tokens = len(prompt_ids)
        delta = choice.get("delta") or {}
        # A server that separates a model's reasoning from its answer sends the reasoning under another name.
        parts = (delta.get("reasoning"), delta.get("content"), choice.get("text"))
        text = "".join(part for part in parts if part)
        ids = tuple(map(int, choice.get("token_ids") or ()))
        steps = _steps(choice.get("logprobs") or {})
        finish = choice.get("finish_reason")
        if not isinstance(finish, str | None):
            raise TypeError
    except (TypeError, ValueError, KeyError, AttributeError):
        raise unexpected_answer_error(server, f"with an event of another form ({shortened(str(event))})") from None
    if finish is not None and finish not in ENDS:
        raise SessionDied(f"the server {server.url} aborted the answer ({shortened(str(finish))}); ask again")
    return TextAddition(text, ids, ENDS[finish] if finish else "", prompt_tokens, steps)


def _steps(logprobs: Mapping[str, Any]) -> tuple[tuple[tuple[str, float], ...], ...]:
    """Returns the likeliest tokens of each step of a chat or a completion, the likeliest first."""
    chat_steps = [
        {each["token"]: each["logprob"] for each in step["top_logprobs"]} for step in logprobs.get("content") or ()
    ]
    completion_steps = [step or {} for step in logprobs.get("top_logprobs") or ()]
    return tuple(
        tuple(sorted(((str(token), float(value)) for token, value in step.items()), key=lambda each: -each[1]))
        for step in (*chat_steps, *completion_steps)
    )
