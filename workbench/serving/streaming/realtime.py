"""Transcription sessions of OpenAI's realtime API on a websocket.

The server keeps the segment that is being spoken, and a few that wait for the model. A client that sends sound faster
than the model works has to wait.
"""

from __future__ import annotations

import binascii
import secrets
from collections.abc import Mapping
from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from workbench.core.errors import BadInput
from workbench.core.visitors import current_visitor
from workbench.live.endpointing import EndpointingLimits
from workbench.live.transcription import FinalText, LiveEvent, LiveTranscription, PartialText, SpeechStarted
from workbench.openai_api.errors import Refusal, error_event, new_event_id
from workbench.serving.figures import LiveRecording
from workbench.serving.routes.bodies import parsed
from workbench.serving.service import Service, error_reply
from workbench.serving.streaming.live_connection import (
    LARGEST_MESSAGE,
    Connection,
    LiveModel,
    PcmDecoder,
    counted,
    live_model,
    transcriber,
)
from workbench.serving.streaming.realtime_settings import BETA, RealtimeSettings

TRANSCRIPTION = "conversation.item.input_audio_transcription"
SHORTEST_COMMIT = 0.1  # seconds of sound, as in OpenAI's API


class Realtime:
    """A transcription session: events in, events out.

    The partial text of a segment may change, but a delta can only add to it. So a delta holds the words on which two
    partial texts in a row agree, and `completed` holds the final text.
    """

    def __init__(self, service: Service, connection: Connection, recording: LiveRecording, model: str):
        self._service, self._connection, self._recording = service, connection, recording
        self._id = f"sess_{secrets.token_hex(12)}"
        self._settings = RealtimeSettings(model)
        self._live: LiveTranscription | None = None
        self._sound = PcmDecoder(self._settings.rate)
        self._earlier_seconds = 0.0  # of sound before the last change of the settings
        self._items: dict[int, str] = {}
        self._before: str | None = None
        self._sent: dict[int, str] = {}
        self._last: dict[int, list[str]] = {}
        self.say("session.created", session=self._session())

    def say(self, kind: str, **fields: Any) -> None:
        """Sends an event."""
        self._connection.say({"type": kind, "event_id": new_event_id(), **fields})

    def refuse(self, error: BaseException, event_id: Any = None) -> None:
        """Sends an error, after which the session goes on."""
        self._connection.say(error_event(error_reply(error)[1]["error"], event_id))

    def take(self, event: Mapping[str, Any]) -> None:
        """Handles an event of the client; raises `BadInput` for an invalid one."""
        kind = event.get("type")
        if kind in ("session.update", BETA):
            self._update(event)
        elif kind == "input_audio_buffer.append":
            self._transcription().feed(self._sound.samples(_decoded(event.get("audio"))))
        elif kind == "input_audio_buffer.commit":
            self._commit()
        elif kind == "input_audio_buffer.clear":
            if self._live is not None:
                self._forget(self._live.discard())
            self._sound = PcmDecoder(self._settings.rate)  # half a sample of the old sound would spoil the new one
            self.say("input_audio_buffer.cleared")
        else:
            raise Refusal(
                f"the event {kind!r:.80} is not one of session.update, input_audio_buffer.append, .commit and .clear",
                "type",
            )

    def close(self) -> None:
        """Ends the work."""
        if self._live is not None:
            self._live.close()
            self._live = None
            for values_by_number in (self._items, self._sent, self._last):  # the next sound counts from one again
                values_by_number.clear()

    def _commit(self) -> None:
        """Ends the present segment. Sound without speech becomes an item with an empty text."""
        pending_seconds = 0.0
        if self._live is not None:
            self._live.feed(self._sound.rest())
            pending_seconds = self._live.pending_seconds
        if self._live is None or pending_seconds < SHORTEST_COMMIT:  # what came stays in the buffer
            raise Refusal(
                f"the audio buffer has {1000 * pending_seconds:.0f} ms of new sound; append at least "
                f"{1000 * SHORTEST_COMMIT:.0f} ms before a commit",
                code="input_audio_buffer_commit_empty",
            )
        if self._live.commit():
            return
        self._live.call_next(lambda: self._say_silence(pending_seconds))

    def _say_silence(self, seconds: float) -> None:
        item = _new_item()
        self._say_committed(item)
        self._say_completed({"item_id": item, "content_index": 0}, "", seconds)

    def _say_committed(self, item: str) -> None:
        self.say("input_audio_buffer.committed", item_id=item, previous_item_id=self._before)
        self._before = item

    def _say_completed(self, item_fields: Mapping[str, Any], text: str, seconds: float) -> None:
        usage = {"type": "duration", "seconds": round(seconds, 3)}
        self.say(f"{TRANSCRIPTION}.completed", **item_fields, transcript=text, usage=usage)

    def _forget(self, number: int | None) -> None:
        """Forgets what was sent about a segment."""
        if number is not None:
            for values_by_number in (self._items, self._sent, self._last):
                values_by_number.pop(number, None)

    def _session(self) -> dict[str, Any]:
        return self._settings.described(self._id)

    def _update(self, event: Mapping[str, Any]) -> None:
        settings = self._settings.updated(event)
        if settings.model:
            self._model(settings)
        if settings != self._settings:
            if self._live is not None:  # what came before is transcribed as it was asked
                self._live.feed(self._sound.rest())
                self._live.finish()
                self._earlier_seconds += self._live.seconds
            self.close()
            self._settings, self._sound = settings, PcmDecoder(settings.rate)
        self.say("session.updated", session=self._session())

    def _model(self, settings: RealtimeSettings) -> LiveModel:
        fields = [("language", settings.language), ("prompt", settings.prompt)]
        return live_model(self._service, settings.model, fields)

    def _transcription(self) -> LiveTranscription:
        if self._live is None:
            if not self._settings.model:
                raise Refusal("the session has no model; name one in session.update", "session", status=404)
            model = self._model(self._settings)
            transcribe, busy, _ = transcriber(self._service, model, self._connection.stop)
            limits = EndpointingLimits(self._settings.silence_ms / 1000)
            on_event = counted(self._service, self._recording, model, self._on_event)
            self._live = LiveTranscription(transcribe, on_event, limits, busy)
        return self._live

    def _on_event(self, event: LiveEvent) -> None:
        item = self._items.setdefault(event.number, _new_item())
        item_fields = {"item_id": item, "content_index": 0}
        if isinstance(event, SpeechStarted):
            self.say("input_audio_buffer.speech_started", audio_start_ms=self._ms(event.start), item_id=item)
        elif isinstance(event, PartialText):
            words = event.text.split(" ")
            agreed = _agreed(self._last.get(event.number, []), words)
            self._last[event.number] = words
            self._add(event.number, " ".join(agreed), item_fields)
        else:
            self.say("input_audio_buffer.speech_stopped", audio_end_ms=self._ms(event.end), item_id=item)
            self._say_committed(item)
            if isinstance(event, FinalText):
                self._add(event.number, event.transcript.text, item_fields)
                self._say_completed(item_fields, event.transcript.text, event.end - event.start)
            else:
                self.say(f"{TRANSCRIPTION}.failed", **item_fields, error=error_reply(event.error)[1]["error"])
            self._forget(event.number)

    def _ms(self, seconds: float) -> int:
        """Returns a time from the start of the session's sound, in ms."""
        return round(1000 * (self._earlier_seconds + seconds))

    def _add(self, number: int, text: str, item_fields: Mapping[str, Any]) -> None:
        sent_text = self._sent.get(number, "")
        if len(text) > len(sent_text) and text.startswith(sent_text):
            self._sent[number] = text
            self.say(f"{TRANSCRIPTION}.delta", **item_fields, delta=text[len(sent_text) :])


def _new_item() -> str:
    return f"item_{secrets.token_hex(10)}"


def _agreed(before: list[str], now: list[str]) -> list[str]:
    """Returns the words at the beginning on which two texts agree."""
    count = next(
        (n for n, (first, second) in enumerate(zip(before, now)) if first != second), min(len(before), len(now))
    )
    return now[:count]


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str) or len(text) > (LARGEST_MESSAGE + 2) // 3 * 4:
        raise Refusal(f"audio is not base64 text of at most {LARGEST_MESSAGE >> 20} MB", "audio")
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        raise Refusal("audio is not base64", "audio") from None


async def realtime(service: Service, socket: WebSocket) -> None:
    """Serves a realtime transcription session."""
    connection = Connection(socket, service.gate.live_idle_seconds)
    async with connection.open():
        with service.figures.live("realtime") as recording:
            try:
                with service.gate.live.hold(current_visitor()):
                    await _converse(service, connection, recording)
            except WebSocketDisconnect:
                raise
            except Exception as error:
                recording.status = connection.refuse(error, error_event)


async def _converse(service: Service, connection: Connection, recording: LiveRecording) -> None:
    model = connection.socket.query_params.get("model", "")
    if model:
        await connection.in_thread(
            live_model, service, model
        )  # an unknown name ends the connection, as 404 ends a request
    session = Realtime(service, connection, recording, model)
    try:
        while True:
            message = await connection.receive()
            event: Any = None
            try:
                if message.get("text") is None:
                    raise Refusal("events are texts; a message of bytes came")
                event = parsed(message["text"])
                if not isinstance(event, dict):
                    raise BadInput("an event is a JSON object with a type")
                await connection.in_thread(session.take, event)
            except WebSocketDisconnect:
                raise
            except ValueError:
                session.refuse(Refusal("an event is not JSON; expected an object with a type"))
            except Exception as error:
                session.refuse(error, event.get("event_id") if isinstance(event, dict) else None)
    finally:
        connection.stop.set()
        await connection.in_thread(session.close)


def realtime_routes(service: Service) -> list[BaseRoute]:
    """Returns the websocket of programs."""

    async def of_programs(socket: WebSocket) -> None:
        await realtime(service, socket)

    return [WebSocketRoute("/v1/realtime", of_programs)]
