"""Reading of chat completion requests: the accepted fields, and one-line errors that name the wrong field."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput, SessionDied, Unavailable
from workbench.core.options import option_specs
from workbench.families.speechlm.model import SpeechLmOptions
from workbench.openai_api.chat_request import ABOUT_THE_CALLER, UNFOLLOWED, ChatRequest, read_chat_request
from workbench.openai_api.errors import Refusal, error_answer
from workbench.openai_api.kept_answers import KeptAnswers
from workbench.session.messages import check_messages

ASK = [{"role": "user", "content": "a"}]
NAMES = [spec.name for spec in option_specs(SpeechLmOptions)]
ROWS = np.arange(12).reshape(3, 4)
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


def request(answers: KeptAnswers | None = None, **fields: Any) -> ChatRequest:
    return read_chat_request({"messages": ASK, **fields}, ["mine", "also"], NAMES, answers or KeptAnswers())


def test_minimal_request_gets_the_default_options() -> None:
    parsed = request()
    assert parsed.model == "mine" and parsed.messages == ASK and parsed.options == {"modalities": "text"}
    assert not (parsed.stream or parsed.include_usage or parsed.token_ids or parsed.notes or parsed.wants_speech)


def test_request_with_all_fields_is_read() -> None:
    parsed = request(
        model="also",
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "pcm16"},
        stream=True,
        stream_options={"include_usage": True},
        temperature=0.5,
        seed=7,
        max_completion_tokens=50,
        audio_temperature=0.7,
        max_audio_rows=20,
        return_token_ids=True,
        user="me",
        n=1,
        stop=None,
        tools=[],
    )
    assert (
        parsed.model == "also" and parsed.stream and parsed.include_usage and parsed.token_ids and parsed.wants_speech
    )
    assert parsed.options == {
        "modalities": "text_audio",
        "temperature": 0.5,
        "seed": 7,
        "max_tokens": 50,
        "audio_temperature": 0.7,
        "max_audio_rows": 20,
    }
    assert parsed.format == "pcm16" and parsed.notes == ("the model has one voice, so the voice 'alloy' was not used",)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(["text"], "text"), (["audio"], "audio"), (["audio", "text"], "text_audio"), ("auto", "auto"), (None, "text")],
)
def test_modalities_field_is_read_in_all_forms(value: Any, expected: str) -> None:
    assert request(modalities=value).modalities == expected


@pytest.mark.parametrize(("stream", "expected"), [(False, "wav"), (True, "pcm16")])
def test_default_audio_format_is_wav_or_pcm16_when_streamed(stream: bool, expected: str) -> None:
    assert request(modalities=["audio"], stream=stream).format == expected


def test_messages_of_all_forms_pass_the_check_of_the_session() -> None:
    answers = KeptAnswers()
    answers.keep("audio_1", "said before", ROWS)
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "name": "me", "content": [{"type": "text", "text": "b"}, SOUND]},
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": None, "audio": {"id": "audio_1"}},
        {"role": "user", "content": "c"},
        {
            "role": "assistant",
            "content": "other words",
            "annotations": [],
            "audio": {"id": "audio_1", "data": "", "transcript": "x"},
        },
        {"role": "user", "content": "d"},
        {"role": "assistant", "content": [{"type": "audio", "streams": ROWS.tolist()}]},
        {"role": "user", "content": "e"},
    ]
    checked = check_messages(request(answers, messages=messages).messages)
    assert [message.role for message in checked] == ["system", *["user", "assistant"] * 3, "user"]
    assert [message.text for message in checked][2::2] == ["said before", "other words", "", *[]]
    for message in checked[2::2]:
        np.testing.assert_array_equal(message.parts[-1].streams, ROWS)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"model": "other"}, "model", "the server has no model 'other'; it has mine, also"),
        ({"temprature": 1}, "temprature", "the request has the unknown field temprature; did you mean temperature?"),
        ({"stream": 1}, "stream", "stream is 1; expected true or false"),
        ({"stream_options": {}, "audio": 3}, "audio", "audio is 3; expected an object with voice and format"),
        ({"audio": {"rate": 3}}, "audio", "audio has the unknown key rate; expected voice and format"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream_options is set, and stream is not"),
        ({"modalities": []}, "modalities", "modalities is []; expected"),
        ({"modalities": ["image"]}, "modalities", "modalities is ['image']; expected"),
        ({"modalities": ["audio"], "audio": {"format": "aac"}}, "audio.format", "audio.format is 'aac', and this"),
        (
            {"modalities": ["audio"], "audio": {"format": "wav"}, "stream": True},
            "audio.format",
            "audio.format is wav, and streamed audio is pcm16",
        ),
        ({"max_tokens": 0}, "max_tokens", "max_tokens is 0; expected a whole number of at least 1"),
        ({"max_completion_tokens": True}, "max_completion_tokens", "max_completion_tokens is True; expected a whole"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens", "max_tokens and max_completion_tokens are both"),
        ({"messages": []}, "messages", "messages is not a list of messages"),
        ({"messages": ["a"]}, "messages[0]", "messages[0] is 'a'; expected an object with role and content"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role", "messages[0].role is 'tool'; expected"),
        ({"messages": [{"role": {}, "content": "a"}]}, "messages[0].role", "messages[0].role is {}; expected"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "messages[0] has no content; expected"),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}, *ASK]},
            "messages[0].tool_calls",
            "messages[0] has tool_calls, which this model cannot read",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
            "messages[0].content[0] is of type 'image_url'; expected text or input_audio",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "audio", "audio": "/etc/passwd"}]}]},
            "messages[0].content[0]",
            "messages[0].content[0] is of type 'audio'; expected text or input_audio",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "audio", "audio": "/etc/passwd"}]}]},
            "messages[0].content[0]",
            "messages[0].content[0] is of type 'audio'; expected text or input_audio",
        ),
        (
            {"messages": [{"role": "assistant", "audio": {"id": "audio_0"}}, *ASK]},
            "messages[0].audio.id",
            "messages[0].audio.id is 'audio_0', and this server keeps no audio of that id, or no longer",
        ),
        ({"messages": [{"role": "user", "audio": {"id": "a"}}]}, "messages[0].audio", "messages[0] of the user has"),
        (
            {"messages": [{"role": "user", "content": "a", "contens": "b"}]},
            "messages[0].contens",
            "messages[0] has the unknown field contens; did you mean content?",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "x"}}]}
                ]
            },
            "messages[0].content[0].cache_control",
            "messages[0].content[0] has the unknown field cache_control; leave it out",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{**SOUND, "input_audio": {**SOUND["input_audio"], "channels": 1}}]}
                ]
            },
            "messages[0].content[0].input_audio.channels",
            "messages[0].content[0].input_audio has the unknown field channels; leave it out",
        ),
    ],
)
def test_invalid_field_raises_one_line_error_with_the_field_name(
    fields: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(Refusal) as caught:
        request(**fields)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value) and caught.value.param == param


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_unsupported_openai_fields_are_refused_unless_they_have_no_effect(name: str) -> None:
    """A request may have these fields with the values that change nothing."""
    for harmless in UNFOLLOWED[name][0]:
        assert name not in request(**{name: harmless}).options
    with pytest.raises(Refusal, match=f"^{name} is .*, and ") as caught:
        request(**{name: 2})
    assert caught.value.param == name


def test_fields_about_the_caller_change_nothing() -> None:
    assert request(**dict.fromkeys(ABOUT_THE_CALLER, "x")).options == request().options


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(JSON | st.dictionaries(st.sampled_from(["messages", "model", "audio", "n", "stream", "modalities"]), JSON))
def test_any_json_body_gives_a_request_or_a_refusal(body: Any) -> None:
    with contextlib.suppress(Refusal):
        parsed = read_chat_request(body, ["mine"], NAMES, KeptAnswers())
        assert parsed.model == "mine" and parsed.messages


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Refusal("no", "n", "unsupported_value", 404), 404, "invalid_request_error"),
        (BadInput("no"), 400, "invalid_request_error"),
        (Unavailable("no"), 503, "server_error"),
        (SessionDied("no"), 500, "server_error"),
    ],
)
def test_errors_have_openais_form(error: Any, status: int, kind: str) -> None:
    answer_status, body = error_answer(error)
    assert answer_status == status and set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["type"] == kind and body["error"]["message"] == "no"
    assert body["error"]["param"] == getattr(error, "param", None)
