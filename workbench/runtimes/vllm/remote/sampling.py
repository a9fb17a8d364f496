"""How a server is to choose tokens, as the fields of a request; and which options no server honours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.decoding.generation import GenerationOptions
from workbench.runtimes.vllm.sampling import known_top_p

MOST_ALTERNATIVES = 20  # that servers of this form tell
HERE = "leave it out, or open the model on this machine"


def sampling_fields(
    options: GenerationOptions, most: int, stop_ids: tuple[int, ...] = (), row: int = 0
) -> dict[str, Any]:
    """The fields of a chat or a completion. All are given, since a server may have other defaults.

    Args:
        most: tokens to generate at most.
        stop_ids: what ends the text beside the model's own end, which the server knows.
        row: of several requests of one call; each draws by a seed of its own.
    """
    return {
        "max_tokens": most,
        "min_tokens": min(options.min_new_tokens, most),
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
    """The fields that make an answer a stream with token ids and the length of the prompt."""
    return {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}


def alternatives_fields(count: int, chats: bool) -> dict[str, Any]:
    """The fields that ask for so many of the likeliest tokens of each step; none for 0.

    Of a chat, one more is asked for where that is allowed: vLLM counts the token that was chosen among them.
    """
    if not count:
        return {}
    asked = {"logprobs": True, "top_logprobs": min(count + 1, MOST_ALTERNATIVES)} if chats else {"logprobs": count}
    return {**asked, "return_tokens_as_token_ids": True}


def check_listening(options: ListeningOptions) -> None:
    """Raises `BadInput` for options of a recording that a server decides, where they are not its own choice."""
    if options.dither:
        raise BadInput(f"option dither is {options.dither:g}, and a server computes the features itself; {HERE}")
    if options.cmvn != "checkpoint":
        raise BadInput(f"option cmvn is {options.cmvn}, and a server computes the features itself; {HERE}")


def form_fields(options: GenerationOptions, most: int, row: int = 0) -> Mapping[str, str]:
    """The fields of a transcription's form, as texts. Raises `BadInput` for options that it has no field for."""
    fields = sampling_fields(options, most, row=row)
    if fields["min_tokens"]:
        raise BadInput(
            f"option min_new_tokens is {fields['min_tokens']}, and the server's transcriptions have no such "
            f"field; {HERE}"
        )
    known = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    return {"max_completion_tokens": str(most), **{name: str(fields[name]) for name in known if name in fields}}
