"""The events of a streamed chat, completion or transcription as plain values: OpenAI's form with vLLM's additions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.errors import SessionDied
from workbench.opening import Server
from workbench.runtimes.vllm.remote.refusals import shortened, strange

ENDS = {"stop": "stop", "tool_calls": "stop", "length": "length"}  # what our results call them


@dataclass(frozen=True)
class Written:
    """What one event adds."""

    text: str = ""
    ids: tuple[int, ...] = ()  # of vLLM with return_token_ids; of other servers none
    finish: str = ""  # stop or length where the text ends here
    prompt_tokens: int | None = None  # where the event says how long the prompt was


def written(event: Mapping[str, Any], server: Server) -> Written:
    """What an event adds to the text; raises `WorkbenchError` for one of another form, or for a text given up."""
    try:
        usage, choices = event.get("usage"), event.get("choices") or ()
        prompt_tokens = int(usage["prompt_tokens"]) if usage else None
        if not choices:
            return Written(prompt_tokens=prompt_tokens)
        [choice] = choices
        delta = choice.get("delta") or {}
        # A server that is told to take a model's thoughts apart from its answer has them under another name.
        parts = (delta.get("reasoning"), delta.get("content"), choice.get("text"))
        text = "".join(part for part in parts if part)
        ids = tuple(map(int, choice.get("token_ids") or ()))
        finish = choice.get("finish_reason")
        if not isinstance(finish, str | None):
            raise TypeError
    except (TypeError, ValueError, KeyError, AttributeError):
        raise strange(server, f"with an event of another form ({shortened(str(event))})") from None
    if finish is not None and finish not in ENDS:
        raise SessionDied(f"the server {server.url} gave the answer up ({shortened(str(finish))}); ask again")
    return Written(text, ids, ENDS[finish] if finish else "", prompt_tokens)
