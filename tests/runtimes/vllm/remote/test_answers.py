"""Parsing of the events of a streamed answer, and errors for malformed events."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.core.errors import SessionDied, WorkbenchError
from workbench.core.settings import Server
from workbench.runtimes.vllm.remote.answers import TextAddition, read_event

SERVER = Server("http://far", "")
CHAT_STEP = {"token": "a", "top_logprobs": [{"token": "a", "logprob": -1.0}, {"token": "b", "logprob": -0.5}]}


@pytest.mark.parametrize(
    "event, expected",
    [
        ({"choices": [{"delta": {"content": "a"}, "token_ids": [1, 2]}]}, TextAddition("a", (1, 2))),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, TextAddition()),
        ({"choices": [{"delta": {}, "finish_reason": "length"}]}, TextAddition(finish="length")),
        ({"choices": [{"delta": {"content": None, "reasoning": "hm"}}]}, TextAddition("hm")),
        ({"choices": [{"text": "b", "token_ids": None, "finish_reason": "stop"}]}, TextAddition("b", finish="stop")),
        ({"choices": [], "usage": {"prompt_tokens": 7}}, TextAddition(prompt_tokens=7)),
        ({"choices": [{"delta": {"content": "a"}}], "usage": None}, TextAddition("a")),
        ({}, TextAddition()),
        (
            {"choices": [{"delta": {"content": "a"}, "token_ids": [1], "logprobs": {"content": [CHAT_STEP]}}]},
            TextAddition("a", (1,), steps=((("b", -0.5), ("a", -1.0)),)),
        ),
        (
            {"choices": [{"text": "ab", "logprobs": {"top_logprobs": [{"a": -1, "b": -0.5}, None]}}]},
            TextAddition("ab", steps=((("b", -0.5), ("a", -1.0)), ())),
        ),
    ],
)
def test_event_is_parsed_into_text_and_token_ids(event: dict[str, Any], expected: TextAddition) -> None:
    assert read_event(event, SERVER) == expected


@pytest.mark.parametrize(
    "event",
    [
        {"choices": "none"},
        {"choices": [1]},
        {"choices": [{}, {}]},
        {"choices": [{"delta": "a"}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"choices": [{"text": "a", "token_ids": ["x"]}]},
        {"choices": [{"text": "a", "finish_reason": ["stop"]}]},
        {"choices": [{"text": "a", "logprobs": {"content": [{}]}}]},
        {"choices": [{"text": "a", "logprobs": {"top_logprobs": [{"a": "x"}]}}]},
        {"usage": {"tokens": 1}},
        {"usage": 1},
    ],
)
def test_malformed_event_raises_an_error_with_the_server_address(event: dict[str, Any]) -> None:
    with pytest.raises(WorkbenchError, match="http://far answers with an event of another form"):
        read_event(event, SERVER)


def test_answer_aborted_by_the_server_raises_session_died() -> None:
    with pytest.raises(SessionDied, match=r"http://far aborted the answer \(abort\); ask again"):
        read_event({"choices": [{"delta": {}, "finish_reason": "abort"}]}, SERVER)
