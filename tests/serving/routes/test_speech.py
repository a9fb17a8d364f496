"""The route for speech: formats, streams, refusals, and what it does with an answer without speech."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from dataclasses import replace
from typing import Any

import openai
import pytest
import soundfile
from openai import OpenAI
from starlette.testclient import TestClient

from tests.serving.conftest import error_message
from tests.support.fake_chat import FakeChatRegistry
from workbench.openai_api.errors import Refusal
from workbench.openai_api.sound_formats import encode_sound
from workbench.openai_api.speech_request import read_speech_request
from workbench.serving.routes import speech
from workbench.session.conversation import AnswerSoFar


def test_speech_route_returns_wav_raw_pcm_and_server_sent_events(client: OpenAI) -> None:
    speech = client.audio.speech.create(model="fake/speech", voice="alloy", input="one", response_format="wav").read()
    samples, rate = soundfile.read(io.BytesIO(speech))
    raw = client.audio.speech.create(model="fake/speech", voice="alloy", input="one", response_format="pcm").read()
    assert rate == 16000 and len(raw) / 2 / 24000 == pytest.approx(len(samples) / rate, abs=1e-3)
    with client.audio.speech.with_streaming_response.create(
        model="fake/speech", voice="alloy", input="one", response_format="pcm", stream_format="sse"
    ) as response:
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    assert events[-1]["type"] == "speech.audio.done" and events[-1]["usage"]["input_tokens"] == 12
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == raw
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model="fake/words", voice="alloy", input="one")
    assert error_message(caught) == "fake/words answers in text; expected a model that speaks"


def test_a_voice_may_be_an_object_with_an_id() -> None:
    body = {"model": "m", "input": "one"}
    assert read_speech_request({**body, "voice": {"id": "slt"}}, ()).voice == "slt"
    for voice in ({"name": "slt"}, {"id": 3}, ["slt"]):
        with pytest.raises(Refusal, match=r"^voice is .*; expected a text$"):
            read_speech_request({**body, "voice": voice}, ())


@pytest.mark.parametrize("form", [{"response_format": "wav"}, {"response_format": "pcm"}, {"stream_format": "sse"}])
def test_request_to_which_the_model_says_nothing_is_refused_with_the_reason(
    client: OpenAI, registry: FakeChatRegistry, monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    """With a status of 500, clients would repeat it."""
    answer = AnswerSoFar("fake/speech", "pytorch").answer("length")
    answer = replace(answer, notes=("the answer has no audio: it has 5 rows, too few for one frame",))
    monkeypatch.setattr(registry.speaker, "_answer", lambda said, given: iter([answer]))
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model="fake/speech", voice="alloy", input="one", **form)
    assert error_message(caught) == (
        "the answer has no audio: it has 5 rows, too few for one frame; ask in other words, or allow a longer answer"
    )


def test_speech_route_names_only_models_that_speak_and_options_that_have_an_effect(http: TestClient) -> None:
    body = {"model": "fake/nobody", "input": "one"}
    message = http.post("/v1/audio/speech", json=body).json()["error"]["message"]
    assert message == "the server has no model 'fake/nobody' for this route; it has fake/speech"
    body = {"model": "fake/speech", "input": "one", "probabilities": True}
    message = http.post("/v1/audio/speech", json=body).json()["error"]["message"]
    assert message.startswith("the request has the unknown field probabilities")


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_speech_file_is_encoded_outside_the_event_loop(
    client: OpenAI, monkeypatch: pytest.MonkeyPatch, stream_format: Any
) -> None:
    formats: list[str] = []

    def encode(samples: Any, rate: int, form: str, param: str) -> bytes:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        formats.append(form)
        return encode_sound(samples, rate, form, param)

    monkeypatch.setattr(speech, "encode_sound", encode)
    client.audio.speech.create(
        model="fake/speech", voice="alloy", input="one", response_format="wav", stream_format=stream_format
    ).read()
    assert formats == ["wav"]
