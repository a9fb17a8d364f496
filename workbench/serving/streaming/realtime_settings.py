"""The settings of a realtime transcription session, and the changes by an event `session.update`.

A field that cannot be followed is refused by name. A field that an event leaves out stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.openai_api.chat_request import LEAVE_OUT
from workbench.openai_api.errors import Refusal
from workbench.serving.streaming.live_connection import RATES, SILENCES, check_whole

REALTIME_RATE = 24000  # Hz, of OpenAI's realtime API
BETA = "transcription_session.update"  # the event of the API's first version, whose fields are not nested
_INPUT = "session.audio.input"
_VAD = f"{_INPUT}.turn_detection"
_INPUTS = ("format", "transcription", "turn_detection", "noise_reduction")
# Fields of the detection of speech that are taken with these values only: OpenAI's defaults, and what changes nothing.
_ONLY: Mapping[str, Sequence[Any]] = {
    "type": ("server_vad",),
    "threshold": (0.5,),
    "prefix_padding_ms": (300,),
    "idle_timeout_ms": (None,),
    "create_response": (True, False, None),
    "interrupt_response": (True, False, None),
}


@dataclass(frozen=True)
class RealtimeSettings:
    """The settings of a session."""

    model: str = ""
    language: str = ""
    prompt: str = ""  # words to expect
    rate: int = REALTIME_RATE  # Hz
    silence_ms: int = 500  # the pause that ends a segment

    def described(self, session: str) -> dict[str, Any]:
        """Returns OpenAI's session object for the session with this id."""
        texts = {"model": self.model, "language": self.language, "prompt": self.prompt}
        return {
            "id": session,
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": self.rate},
                    "transcription": {name: text or None for name, text in texts.items()},
                    "turn_detection": {"type": "server_vad", "silence_duration_ms": self.silence_ms},
                }
            },
        }

    def updated(self, event: Mapping[str, Any]) -> RealtimeSettings:
        """Returns the settings after an event; raises `Refusal` for what cannot be followed."""
        session = event.get("session")
        if not isinstance(session, Mapping):
            raise Refusal("session is not an object", "session")
        if event.get("type") == BETA and "audio" not in session:
            session = _nested(session)
        if session.get("type", "transcription") != "transcription":
            raise Refusal("this server has sessions of the type transcription; set it", "session.type")
        _check_names(session, "session", ("type", "audio", "include"))
        if session.get("include"):
            raise Refusal(f"session.include asks for what this server does not return; {LEAVE_OUT}", "session.include")
        input_fields = _part(_part(session, "session.audio", ("input",)), _INPUT, _INPUTS)
        if input_fields.get("noise_reduction"):
            raise Refusal(f"this server reduces no noise; {LEAVE_OUT}", f"{_INPUT}.noise_reduction")
        form = _part(input_fields, f"{_INPUT}.format", ("type", "rate"))
        if form.get("type", "audio/pcm") != "audio/pcm":
            raise Refusal(f"the format is {form.get('type')!r:.80}; expected audio/pcm", f"{_INPUT}.format")
        texts = _part(input_fields, f"{_INPUT}.transcription", ("model", "language", "prompt"))
        return replace(
            self,
            rate=check_whole(form.get("rate", self.rate), f"{_INPUT}.format.rate", RATES),
            silence_ms=self._silence(input_fields),
            **{name: _text(value, f"{_INPUT}.transcription.{name}") for name, value in texts.items()},
        )

    def _silence(self, input_fields: Mapping[str, Any]) -> int:
        if "turn_detection" in input_fields and input_fields["turn_detection"] is None:
            raise Refusal(f"{_VAD} is null, and this server always detects speech; {LEAVE_OUT}", _VAD)
        detection = _part(input_fields, _VAD, (*_ONLY, "silence_duration_ms"))
        for name, values in _ONLY.items():
            if name in detection and detection[name] not in values:
                raise Refusal(f"{_VAD}.{name} is {detection[name]!r:.80}; expected {values[0]}", f"{_VAD}.{name}")
        name = "silence_duration_ms"
        return check_whole(detection.get(name, self.silence_ms), f"{_VAD}.{name}", SILENCES)


def _nested(session: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a session object of the API's first version to the present form."""
    inner = {"input_audio_transcription": "transcription", "input_audio_noise_reduction": "noise_reduction"}
    names = {**inner, "turn_detection": "turn_detection"}
    input_fields = {names[name]: value for name, value in session.items() if name in names}
    kind = session.get("input_audio_format", "pcm16")
    if kind != "pcm16":
        raise Refusal(f"input_audio_format is {kind!r:.80}; expected pcm16", "session.input_audio_format")
    if "input_audio_format" in session:
        input_fields["format"] = {"type": "audio/pcm", "rate": REALTIME_RATE}
    other_settings = {name: value for name, value in session.items() if name not in (*names, "input_audio_format")}
    return {**other_settings, "audio": {"input": input_fields}}


def _part(fields: Mapping[str, Any], path: str, names: Sequence[str]) -> Mapping[str, Any]:
    """Returns the object in `fields` under the last name of `path`; the whole path is for messages."""
    found = fields.get(path.rpartition(".")[2])
    found = {} if found is None else found
    if not isinstance(found, Mapping):
        raise Refusal(f"{path} is {found!r:.80}; expected an object", path, "invalid_type")
    _check_names(found, path, names)
    return found


def _check_names(fields: Mapping[str, Any], path: str, names: Sequence[str]) -> None:
    for name in fields:
        if name not in names:
            raise Refusal(
                f"{path} has the field {name!s:.60}, which this server does not follow; {LEAVE_OUT}",
                f"{path}.{name:.60}",
                "unknown_parameter",
            )


def _text(value: Any, path: str) -> str:
    if value is not None and not isinstance(value, str):
        raise Refusal(f"{path} is {value!r:.80}; expected a text", path, "invalid_type")
    return value or ""
