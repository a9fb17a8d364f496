"""Chat completion answers in OpenAI's form: joined stream chunks, usage counts and server-sent events."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_conversations import fake_conversation
from workbench.core.errors import SessionDied
from workbench.core.options import option_specs
from workbench.families.speechlm import SpeechLmOptions
from workbench.openai_api.chat_answer import NO_TEXT, ChatAnswer, error_event, events, usage
from workbench.openai_api.chat_request import ChatRequest, read_chat_request
from workbench.openai_api.kept_answers import KeptAnswers
from workbench.session.conversation import Answer

ASK = [{"role": "user", "content": "say three"}]
NAMES = [spec.name for spec in option_specs(SpeechLmOptions)]
MODALITIES = (["text"], ["audio"], ["text", "audio"], "auto")


def read(kept: KeptAnswers, **fields: Any) -> ChatRequest:
    return read_chat_request({"messages": ASK, **fields}, ["fake"], NAMES, kept)


def told(kept: KeptAnswers, ends: float = 0.0, **fields: Any) -> tuple[Any, list[Any], Answer]:
    """The answer whole, in chunks, and as the session gives it."""
    request = read(kept, **fields)
    *before, answer = fake_conversation(ends=ends).converse_stream(request.messages, **request.options)
    assert isinstance(answer, Answer)
    writing = ChatAnswer(request, kept)
    chunks = [chunk for event in [*before, answer] for chunk in writing.chunks(event)]
    return ChatAnswer(request, kept).whole(answer), chunks, answer


def joined(chunks: list[Any]) -> dict[str, Any]:
    """What a client has when it joins the deltas, as OpenAI's does: texts are joined, other values taken."""
    found: dict[str, Any] = {"content": None, "audio": {}, "data": b"", "finish": None}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("content") is not None:
                found["content"] = (found["content"] or "") + delta["content"]
            for name, value in (delta.get("audio") or {}).items():
                if name == "data":
                    found["data"] += base64.b64decode(value)
                else:
                    found["audio"][name] = found["audio"].get(name, "") + value if isinstance(value, str) else value
            found["finish"] = choice["finish_reason"] or found["finish"]
    return found


@settings(max_examples=40)
@given(st.sampled_from(MODALITIES), st.integers(0, 50), st.sampled_from([0.0, 3.0]), st.booleans())
def test_joined_stream_chunks_equal_the_whole_answer(modalities: Any, seed: int, ends: float, ids: bool) -> None:
    kept = KeptAnswers()
    asked = {"modalities": modalities, "seed": seed, "audio": {"format": "pcm16"}, "return_token_ids": ids}
    whole, chunks, answer = told(kept, ends, **asked)
    [choice] = whole["choices"]
    message, found = choice["message"], joined(chunks)
    spoken = modalities in (["audio"], ["text", "audio"])
    assert found["content"] == message["content"] == (None if spoken else answer.text)
    assert found["finish"] == choice["finish_reason"] == answer.finish
    if message["audio"] is None:
        assert not found["audio"] and not found["data"] and answer.audio is None
    else:
        assert found["data"] == base64.b64decode(message["audio"]["data"])
        assert len(found["data"]) == 2 * (0 if answer.audio is None else len(answer.audio))
        assert found["audio"].get("transcript", "") == message["audio"]["transcript"] == (answer.text if spoken else "")
        assert found["audio"]["sample_rate"] == message["audio"]["sample_rate"] == 16000
        assert found["audio"]["id"].startswith("audio_")
    if ids:
        choices = [each for chunk in chunks for each in chunk["choices"]]
        assert [n for each in choices for n in each.get("token_ids", [])] == list(answer.token_ids)
        rows = [row for each in choices for row in each.get("streams", [])]
        assert (rows or None) == choice["streams"] == (None if answer.streams is None else answer.streams.tolist())
    assert ("token_ids" in choice) == ids == ("speech_workbench" in chunks[0])
    json.dumps([whole, chunks], allow_nan=False)


def test_audio_only_answer_has_an_empty_transcript_and_a_note() -> None:
    whole, chunks, _ = told(KeptAnswers(), modalities=["audio"])
    assert whole["choices"][0]["message"]["audio"]["transcript"] == "" and whole["notes"] == [NO_TEXT]
    assert chunks[-1]["notes"] == [NO_TEXT]


@pytest.mark.parametrize("stream", [False, True])
def test_later_request_gets_the_exact_code_rows_by_audio_id(stream: bool) -> None:
    """By the id of the audio, until its time is over."""
    kept = KeptAnswers()
    whole, chunks, answer = told(kept, modalities=["text", "audio"])
    audio = joined(chunks)["audio"] if stream else whole["choices"][0]["message"]["audio"]
    earlier = kept.get(audio["id"])
    assert earlier is not None and earlier.expires_at == audio["expires_at"] and earlier.text == answer.text
    message = {"role": "assistant", "audio": {"id": audio["id"]}}
    request = read(kept, messages=[*ASK, message, *ASK])
    own = fake_conversation().converse(request.messages, modalities="text")
    assert own.token_ids == fake_conversation().converse([*ASK, answer.message(), *ASK], modalities="text").token_ids


def test_usage_counts_prompt_completion_and_audio_tokens() -> None:
    kept = KeptAnswers()
    asked = {"modalities": ["text", "audio"], "max_completion_tokens": 30}
    whole, _, answer = told(kept, **asked)
    assert whole["usage"] == usage(answer) and whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 30 and whole["usage"]["prompt_tokens"] == answer.prompt_rows
    assert whole["usage"]["completion_tokens_details"]["audio_tokens"] == len(answer.streams)  # type: ignore[arg-type]
    _, chunks, _ = told(kept, **asked, stream=True, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"]


def test_audio_data_in_wav_format_equals_the_wav_file_of_the_answer() -> None:
    whole, _, answer = told(KeptAnswers(), modalities=["audio"], audio={"voice": "default", "format": "wav"})
    assert base64.b64decode(whole["choices"][0]["message"]["audio"]["data"]) == answer.wav()


def test_openai_client_classes_validate_the_answer_and_its_chunks() -> None:
    types = pytest.importorskip("openai.types.chat", reason="needs OpenAI's client")
    whole, chunks, answer = told(KeptAnswers(), modalities=["text", "audio"])
    found = types.ChatCompletion.model_validate(whole, strict=True)
    assert found.choices[0].message.audio.transcript == answer.text
    for chunk in chunks:
        types.ChatCompletionChunk.model_validate(chunk, strict=True)


def test_server_sent_events_carry_chunks_and_errors_as_json() -> None:
    assert events([{"a": "é"}, {"b": 1}]) == 'data: {"a": "é"}\n\ndata: {"b": 1}\n\n'
    line = error_event(SessionDied("the engine has ended"))
    assert json.loads(line.removeprefix("data: "))["error"]["message"] == "the engine has ended"


def test_answer_contains_token_probabilities_when_requested() -> None:
    whole, _, answer = told(
        KeptAnswers(), modalities=["text"], probabilities=True, temperature=0.5, return_token_ids=True
    )
    sent = np.array(whole["speech_workbench"]["probabilities"], dtype=np.float64)
    np.testing.assert_allclose(sent, answer.probabilities, atol=1e-6)
