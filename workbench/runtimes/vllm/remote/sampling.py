"""The fields of a request that say how a server chooses tokens; and the options that no server supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.decoding.generation import GenerationOptions
from workbench.runtimes.vllm.requests.sampling import known_top_p

MAX_ALTERNATIVES = 20  # the most that servers of this kind send
LOCAL_ADVICE = "leave it out, or open the model on this machine"


def sampling_fields(
    options: GenerationOptions, max_tokens: int, stop_ids: tuple[int, ...] = (), row: int = 0
) -> dict[str, Any]:
    """Returns the fields of a chat or a completion. All are sent, since a server may have other defaults.

    Args:
        max_tokens: the most tokens to generate.
        stop_ids: tokens that end the text, besides the model's own end, which the server knows.
        row: index of the request in its call; it makes the seed of each request different.
    """
    return {
        "max_tokens": max_tokens,
        "min_tokens": min(options.min_new_tokens, max_tokens),
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": known_top_p(options.top_p),
        "min_p": 0.0,
        "repetition_penalty": options.repetition_penalty,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": list(stop_ids),
        **({"seed": options.seed + row} if options.temperature > 0 else {}),
    }


def streaming_fields() -> dict[str, Any]:
    """Returns the fields that ask for a stream with the token ids of prompt and text, and the length of the prompt."""
    return {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}


def alternatives_fields(count: int, chats: bool) -> dict[str, Any]:
    """Returns the fields that ask for `count` of the likeliest tokens of each step; none for 0.

    For a chat, one more is asked for if allowed: vLLM counts the chosen token among them.
    """
    if not count:
        return {}
    fields = {"logprobs": True, "top_logprobs": min(count + 1, MAX_ALTERNATIVES)} if chats else {"logprobs": count}
    return {**fields, "return_tokens_as_token_ids": True}


def check_listening(options: ListeningOptions) -> None:
    """Raises `BadInput` for options of a recording that differ from the server's own choice."""
    if options.dither:
        raise BadInput(
            f"option dither is {options.dither:g}, and a server computes the features itself; {LOCAL_ADVICE}"
        )
    if options.cmvn != "checkpoint":
        raise BadInput(f"option cmvn is {options.cmvn}, and a server computes the features itself; {LOCAL_ADVICE}")


def form_fields(options: GenerationOptions, max_tokens: int, row: int = 0) -> Mapping[str, str]:
    """Returns the fields of a transcription's form, as texts. Raises `BadInput` for options that it has no field
    for.
    """
    fields = sampling_fields(options, max_tokens, row=row)
    if fields["min_tokens"]:
        raise BadInput(
            f"option min_new_tokens is {fields['min_tokens']}, and the server's transcriptions have no such "
            f"field; {LOCAL_ADVICE}"
        )
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    return {"max_completion_tokens": str(max_tokens), **{name: str(fields[name]) for name in names if name in fields}}
