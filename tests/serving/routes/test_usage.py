"""Token counts of completions that a stop text ends, and the text offsets of streamed parts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.coroutines import finished
from workbench.openai_api.completion import CompletionRequest, read_completion_request
from workbench.openai_api.errors import Refusal
from workbench.serving.routes.chats import stopped_at
from workbench.serving.routes.completions import _parts, completion_events
from workbench.session.conversation import Answer, AnswerStart
from workbench.session.values import Alternative, Generation, Piece

WORDS = ("one", " two", " three", " four")
PROMPT = 7


def pieces() -> Iterator[Piece | Generation]:
    """The stream of a session that writes four words after a prompt of seven tokens."""
    for number, word in enumerate(WORDS):
        yield Piece(word, (number,), (Alternative(number, word, -0.5),), PROMPT)
    yield Generation("m", "pytorch", "".join(WORDS), (0, 1, 2, 3), PROMPT, "stop", 0.0, 0.0, 0.0)


def request(**fields: Any) -> CompletionRequest:
    return read_completion_request({"model": "m", "prompt": "x", **fields}, ())


def complete(completion: CompletionRequest) -> list[Piece | Generation]:
    session = SimpleNamespace(generate_stream=lambda prompt, **options: pieces())
    service = SimpleNamespace(open=lambda offer, stop: session, waiting=lambda stop: nullcontext())
    offer = SimpleNamespace(card=SimpleNamespace(id="m"), cell=SimpleNamespace(runtime="pytorch"))
    return list(completion_events(SimpleNamespace(service=service), offer, completion, threading.Event()))  # type: ignore[arg-type]


@pytest.mark.parametrize(("stops", "text", "ids"), [([" th"], "one two", 3), ([], "one two three four", 4)])
def test_completion_reports_its_prompt_and_output_token_counts(stops: list[str], text: str, ids: int) -> None:
    last = complete(request(stop=stops or None))[-1]
    assert isinstance(last, Generation) and last.finish == "stop"
    assert (last.text, last.prompt_tokens, len(last.tokens)) == (text, PROMPT, ids)


@pytest.mark.parametrize(("stops", "ids"), [((" th",), 3), ((), 4)])
def test_chat_answer_reports_its_prompt_and_output_token_counts(stops: tuple[str, ...], ids: int) -> None:
    def events() -> Iterator[Any]:
        yield AnswerStart({})
        for piece in pieces():
            if isinstance(piece, Piece):
                yield piece
        yield Answer("m", "pytorch", "".join(WORDS), None, None, "stop", (0, 1, 2, 3), None, PROMPT, 0.0, 0.0)

    last = list(stopped_at(stops, events()))[-1]  # type: ignore[arg-type]
    assert isinstance(last, Answer) and (last.prompt_rows, len(last.token_ids)) == (PROMPT, ids)


def test_streamed_logprobs_contain_text_offsets() -> None:
    completion = replace(request(logprobs=1, stream=True))

    async def events() -> Any:
        for event in complete(completion):
            yield event

    async def read_parts() -> list[bytes]:
        return [part async for part in _parts(completion, events())]

    lines = [
        line.removeprefix("data: ") for part in finished(read_parts()) for line in part.decode().splitlines() if line
    ]
    logprobs = [json.loads(line)["choices"][0]["logprobs"] for line in lines if line != "[DONE]"]
    assert [part["text_offset"] for part in logprobs if part] == [[0], [3], [7], [13]]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options is set, and stream is not"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "this server adds nothing"),
    ],
)
def test_stream_options_that_have_no_effect_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        request(**fields)
