"""Reads a request for speech: the text to say, the voice, the format of the sound."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.openai_api.chat_request import ABOUT_THE_CALLER, LEAVE_OUT, unknown_field
from workbench.openai_api.errors import Refusal
from workbench.openai_api.sound_formats import PCM, formats

OWN_FIELDS = ("model", "input", "voice", "response_format", "speed", "instructions", "stream_format")
ROUTE_PCM = "pcm"  # what this route calls 16-bit samples without a header
PCM_RATE = 24000  # Hz; OpenAI's clients play raw samples at this rate
MAX_INPUT_CHARACTERS = 4096  # characters, as in OpenAI's API
AUDIO, SSE = STREAMS = ("audio", "sse")
NO_VOICE = ("", "default", "alloy")  # what clients send that must name one


@dataclass(frozen=True)
class SpeechRequest:
    """A request with a valid form; the values of options are checked later."""

    model: str
    input: str
    voice: str  # empty for the model's own
    form: str
    instructions: str
    events: bool  # whether the sound comes as server-sent events
    options: Mapping[str, Any]


def read_speech_request(body: Mapping[str, Any], options: Collection[str]) -> SpeechRequest:
    """Returns the request in a body of JSON; raises `Refusal` for anything that cannot be followed."""
    fields = {name: value for name, value in body.items() if value is not None}
    for name in fields:
        if name not in {*OWN_FIELDS, *ABOUT_THE_CALLER, *options}:
            raise unknown_field(name, [*OWN_FIELDS, *options])
    if isinstance(fields.get("voice"), Mapping) and set(fields["voice"]) == {"id"}:  # a client's own voice
        fields["voice"] = fields["voice"]["id"]
    for name in ("input", "voice", "response_format", "instructions", "stream_format"):
        if not isinstance(fields.get(name, ""), str):
            raise Refusal(f"{name} is {fields[name]!r:.80}; expected a text", name, "invalid_type")
    text = fields.get("input", "").strip()
    if not text or len(text) > MAX_INPUT_CHARACTERS:
        raise Refusal(
            f"input has {len(text)} characters; expected 1 to {MAX_INPUT_CHARACTERS}", "input", "invalid_value"
        )
    speed = fields.get("speed", 1.0)
    if speed != 1 or isinstance(speed, bool):
        raise Refusal(f"speed is {speed!r:.80}, and the model has one pace; {LEAVE_OUT}", "speed", "unsupported_value")
    form = fields.get("response_format") or ("mp3" if "mp3" in formats() else "wav")
    format_names = [ROUTE_PCM if name == PCM else name for name in formats()]
    if form not in format_names:
        raise Refusal(
            f"response_format is {form!r:.80}, and this server writes {', '.join(format_names)}; choose one of them",
            "response_format",
            "unsupported_value",
        )
    stream = fields.get("stream_format") or AUDIO
    if stream not in STREAMS:
        raise Refusal(f"stream_format is {stream!r:.80}; expected {' or '.join(STREAMS)}", "stream_format")
    voice = fields.get("voice", "")
    return SpeechRequest(
        model=str(fields.get("model")),
        input=text,
        voice="" if voice in NO_VOICE else voice,
        form=PCM if form == ROUTE_PCM else form,
        instructions=fields.get("instructions", ""),
        events=stream == SSE,
        options={name: fields[name] for name in options if name in fields},
    )
