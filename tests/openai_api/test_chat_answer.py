"""Chat completion answers in OpenAI's form: joined stream chunks, usage counts and server-sent events."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_conversations import fake_conversation
from workbench.core.errors import SessionDied
from workbench.core.options import option_specs
from workbench.families.speechlm.model import SpeechLmOptions
from workbench.openai_api.chat_answer import NO_TEXT, ChatAnswer, error_event, events, usage
from workbench.openai_api.chat_request import ChatRequest, read_chat_request
from workbench.openai_api.kept_answers import KeptAnswers
from workbench.openai_api.sound_formats import encode_sound
from workbench.session.conversation import Answer, AudioPiece

ASK = [{"role": "user", "content": "say three"}]
NAMES = [spec.name for spec in option_specs(SpeechLmOptions)]
MODALITIES = (["text"], ["audio"], ["text", "audio"], "auto")


def read_request(answers: KeptAnswers, **fields: Any) -> ChatRequest:
    return read_chat_request({"messages": ASK, **fields}, ["fake"], NAMES, answers)


def answer_forms(answers: KeptAnswers, ends: float = 0.0, **fields: Any) -> tuple[Any, list[Any], Answer]:
    """Returns the complete response, its stream chunks, and the session's answer."""
    request = read_request(answers, **fields)
    *pieces, answer = fake_conversation(ends=ends).converse_stream(request.messages, **request.options)
    assert isinstance(answer, Answer)
    writer = ChatAnswer(request, answers)
    chunks = [chunk for event in [*pieces, answer] for chunk in writer.chunks(event)]
    return ChatAnswer(request, answers).whole(answer), chunks, answer


def join_deltas(chunks: list[Any]) -> dict[str, Any]:
    """Returns the message of a client that joins the deltas as OpenAI's: it joins texts, and takes other values."""
    message: dict[str, Any] = {"content": None, "audio": {}, "finish": None}
    data = ""
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("content") is not None:
                message["content"] = (message["content"] or "") + delta["content"]
            for name, value in (delta.get("audio") or {}).items():
                if name == "data":
                    data += value
                else:
                    message["audio"][name] = message["audio"].get(name, "") + value if isinstance(value, str) else value
            message["finish"] = choice["finish_reason"] or message["finish"]
    return {**message, "data": base64.b64decode(data)}


@settings(max_examples=40)
@given(st.sampled_from(MODALITIES), st.integers(0, 50), st.sampled_from([0.0, 3.0]), st.booleans())
def test_joined_stream_chunks_equal_the_whole_answer(modalities: Any, seed: int, ends: float, ids: bool) -> None:
    answers = KeptAnswers()
    fields = {"modalities": modalities, "seed": seed, "audio": {"format": "pcm16"}, "return_token_ids": ids}
    response, chunks, answer = answer_forms(answers, ends, **fields)
    [choice] = response["choices"]
    message, streamed = choice["message"], join_deltas(chunks)
    with_audio = modalities in (["audio"], ["text", "audio"])
    assert streamed["content"] == message["content"] == (None if with_audio else answer.text)
    assert streamed["finish"] == choice["finish_reason"] == answer.finish
    if message["audio"] is None:
        assert not streamed["audio"] and not streamed["data"] and answer.audio is None
    else:
        assert streamed["data"] == base64.b64decode(message["audio"]["data"])
        assert len(streamed["data"]) == 2 * (0 if answer.audio is None else len(answer.audio))
        assert (
            streamed["audio"].get("transcript", "")
            == message["audio"]["transcript"]
            == (answer.text if with_audio else "")
        )
        assert streamed["audio"]["sample_rate"] == message["audio"]["sample_rate"] == 16000
        assert streamed["audio"]["id"].startswith("audio_")
    if ids:
        choices = [each for chunk in chunks for each in chunk["choices"]]
        assert [n for each in choices for n in each.get("token_ids", [])] == list(answer.token_ids)
        rows = [row for each in choices for row in each.get("streams", [])]
        assert (rows or None) == choice["streams"] == (None if answer.streams is None else answer.streams.tolist())
    assert ("token_ids" in choice) == ids == ("speech_workbench" in chunks[0])
    json.dumps([response, chunks], allow_nan=False)


def test_base64_of_streamed_audio_can_be_joined() -> None:
    """Pieces of any length: padding in the middle of a text would end it for most decoders."""
    answers = KeptAnswers()
    writer = ChatAnswer(read_request(answers, modalities=["text", "audio"], audio={"format": "pcm16"}), answers)
    sound = np.linspace(-0.9, 0.9, 1000, dtype=np.float32)
    pieces = np.split(sound, [1, 321, 322, 324, 965])
    spoken = [AudioPiece(samples, 16000, 0) for samples in pieces]
    answer = replace(fake_conversation().converse(ASK, modalities="text"), audio=sound, sample_rate=16000)
    chunks = [chunk for event in [*spoken, answer] for chunk in writer.chunks(event)]
    assert join_deltas(chunks)["data"] == encode_sound(sound, 16000, "pcm16")


def test_audio_only_answer_has_an_empty_transcript_and_a_note() -> None:
    response, chunks, _ = answer_forms(KeptAnswers(), modalities=["audio"])
    assert response["choices"][0]["message"]["audio"]["transcript"] == "" and response["notes"] == [NO_TEXT]
    assert chunks[-1]["notes"] == [NO_TEXT]


@pytest.mark.parametrize("stream", [False, True])
def test_later_request_gets_the_exact_code_rows_by_audio_id(stream: bool) -> None:
    """The id of the audio names the rows until they expire."""
    answers = KeptAnswers()
    response, chunks, answer = answer_forms(answers, modalities=["text", "audio"])
    audio = join_deltas(chunks)["audio"] if stream else response["choices"][0]["message"]["audio"]
    earlier = answers.get(audio["id"])
    assert earlier is not None and earlier.expires_at == audio["expires_at"] and earlier.text == answer.text
    message = {"role": "assistant", "audio": {"id": audio["id"]}}
    request = read_request(answers, messages=[*ASK, message, *ASK])
    next_answer = fake_conversation().converse(request.messages, modalities="text")
    assert (
        next_answer.token_ids
        == fake_conversation().converse([*ASK, answer.message(), *ASK], modalities="text").token_ids
    )


def test_speech_that_came_before_the_text_stays_before_it_in_the_next_prompt() -> None:
    answers = KeptAnswers()
    question = [{"role": "user", "content": "say aaa"}]
    response, _, answer = answer_forms(answers, modalities="auto", messages=question)
    assert answer.speaks_first and answer.text  # as the fake model chooses for this question
    request = read_request(answers, messages=[*question, response["choices"][0]["message"], *ASK])
    sent, expected = request.messages[1]["content"], answer.message()["content"]
    assert [part["type"] for part in sent] == [part["type"] for part in expected] == ["audio", "text"]


def test_message_of_an_answer_without_speech_can_be_sent_back() -> None:
    answers = KeptAnswers()
    fields: dict[str, Any] = {"modalities": ["text", "audio"], "max_text_tokens": 3, "max_tokens": 4}
    response, _, answer = answer_forms(answers, **fields)
    message = response["choices"][0]["message"]
    assert answer.audio is None and message["audio"]["transcript"] == answer.text != ""
    request = read_request(answers, messages=[*ASK, message, *ASK])
    assert request.messages[1] == {"role": "assistant", "content": [{"type": "text", "text": answer.text}]}


def test_answer_without_speech_is_not_called_speech_alone() -> None:
    response, chunks, _ = answer_forms(KeptAnswers(), modalities=["audio"], max_audio_rows=1)
    assert response["notes"] == chunks[-1]["notes"] == ["the answer has no audio: it has 1 row, too few for one frame"]


def test_usage_counts_prompt_completion_and_audio_tokens() -> None:
    answers = KeptAnswers()
    fields = {"modalities": ["text", "audio"], "max_completion_tokens": 30}
    response, _, answer = answer_forms(answers, **fields)
    assert response["usage"] == usage(answer) and response["choices"][0]["finish_reason"] == "length"
    assert response["usage"]["completion_tokens"] == 30 and response["usage"]["prompt_tokens"] == answer.prompt_rows
    assert response["usage"]["completion_tokens_details"]["audio_tokens"] == len(answer.streams)  # type: ignore[arg-type]
    _, chunks, _ = answer_forms(answers, **fields, stream=True, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == response["usage"]


def test_audio_data_in_wav_format_equals_the_wav_file_of_the_answer() -> None:
    response, _, answer = answer_forms(KeptAnswers(), modalities=["audio"], audio={"voice": "default", "format": "wav"})
    assert base64.b64decode(response["choices"][0]["message"]["audio"]["data"]) == answer.wav()


def test_openai_client_classes_validate_the_answer_and_its_chunks() -> None:
    types = pytest.importorskip("openai.types.chat", reason="needs OpenAI's client")
    response, chunks, answer = answer_forms(KeptAnswers(), modalities=["text", "audio"])
    completion = types.ChatCompletion.model_validate(response, strict=True)
    assert completion.choices[0].message.audio.transcript == answer.text
    for chunk in chunks:
        types.ChatCompletionChunk.model_validate(chunk, strict=True)


def test_server_sent_events_carry_chunks_and_errors_as_json() -> None:
    assert events([{"a": "é"}, {"b": 1}]) == 'data: {"a": "é"}\n\ndata: {"b": 1}\n\n'
    line = error_event(SessionDied("the engine has ended"))
    assert json.loads(line.removeprefix("data: "))["error"]["message"] == "the engine has ended"


@pytest.mark.parametrize("ids", [True, False])
def test_answer_contains_token_probabilities_when_requested(ids: bool) -> None:
    response, chunks, answer = answer_forms(
        KeptAnswers(), modalities=["text"], probabilities=True, temperature=0.5, return_token_ids=ids
    )
    for form in (response, chunks[-1]):
        probabilities = np.array(form["speech_workbench"]["probabilities"], dtype=np.float64)
        np.testing.assert_allclose(probabilities, answer.probabilities, atol=1e-6)
