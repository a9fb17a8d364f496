"""The websocket of the page's microphone.

The page sends one JSON object (`model`, `options`, `rate`, `endSilence` in ms), then samples as int16, low byte first,
and `{"type": "commit"}` or `{"type": "stop"}`. The server sends objects with `type`: `ready`, `began`, `written`,
`final`, `failed`, `refused` and `end`. Without a model it sends only `began` and `spoke`, which say when somebody
speaks.

The server keeps the segment that is being spoken, and a few that wait for the model. A client that sends sound faster
than the model works has to wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from workbench.core.visitors import current_visitor
from workbench.live.endpointing import Endpointer, SpeechSegment
from workbench.live.transcription import Failed, LiveEvent, LiveTranscription, PartialText, SpeechStarted
from workbench.openai_api.errors import Refusal
from workbench.serving.admission.refusals import refusal_of_page
from workbench.serving.figures import LiveRecording
from workbench.serving.routes.bodies import parsed
from workbench.serving.service import Service, error_reply
from workbench.serving.streaming.live_connection import (
    LARGEST_MESSAGE,
    Connection,
    LiveRequest,
    PcmDecoder,
    counted,
    live_request,
    transcriber,
)


async def listen(service: Service, socket: WebSocket) -> None:
    """Serves the page's microphone."""
    connection = Connection(socket, service.gate.live_idle_seconds)
    async with connection.open():
        with service.figures.live("live") as recording:
            try:
                with service.gate.live.hold(current_visitor()):
                    first = _json_of(await connection.receive())
                    if not isinstance(first, Mapping):
                        raise Refusal("the first message is not a JSON object; reload the page")
                    page_request = await connection.in_thread(live_request, service, first)
                    await _transcribe_live(service, connection, recording, page_request)
            except WebSocketDisconnect:
                raise
            except Exception as error:
                recording.status = connection.refuse(error, refusal_of_page)


async def _transcribe_live(
    service: Service, connection: Connection, recording: LiveRecording, request: LiveRequest
) -> None:
    sound = PcmDecoder(request.rate)
    if request.model is None:
        await _notice(connection, sound, Endpointer(request.limits))
        return
    opened = await connection.in_thread(transcriber, service, request.model, connection.stop)
    transcribe, busy, _ = opened
    on_event = counted(service, recording, request.model, lambda event: connection.say(page_event(event)))
    live = LiveTranscription(transcribe, on_event, request.limits, busy)
    try:
        connection.say({"type": "ready"})
        while True:
            message = await connection.receive()
            if content := message.get("bytes"):
                for piece in _pieces(content):
                    await connection.in_thread(live.feed, sound.samples(piece))
                continue
            fields = _json_of(message)
            kind = fields.get("type") if isinstance(fields, Mapping) else None
            if kind in ("commit", "stop"):
                await connection.in_thread(live.feed, sound.rest())
            if kind == "commit":
                await connection.in_thread(live.commit)
            elif kind == "stop":
                await connection.in_thread(live.finish)
                connection.say({"type": "end", "seconds": live.seconds})
                return
    finally:
        connection.stop.set()
        await connection.in_thread(live.close)


def _json_of(message: Mapping[str, Any]) -> Any:
    """Returns the JSON of a message; raises `Refusal` for another text."""
    try:
        return parsed(message.get("text") or "")
    except ValueError:
        raise Refusal("a message is not JSON; reload the page") from None


async def _notice(connection: Connection, sound: PcmDecoder, endpointer: Endpointer) -> None:
    """Says when somebody begins and ends to speak, with places in samples at 16 kHz."""
    connection.say({"type": "ready"})
    speaking = 0
    while True:
        content = (await connection.receive()).get("bytes")
        ended = await connection.in_thread(_speech_in, content, sound, endpointer)
        present = endpointer.present()
        for each in (*ended, *([present] if present else [])):
            if each.number > speaking:
                speaking = each.number
                connection.say({"type": "began", "number": each.number, "start": round(each.start, 3)})
        for each in ended:
            spoke = {"type": "spoke", "number": each.number, "start": round(each.start, 3), "end": round(each.end, 3)}
            connection.say(spoke)
        if not content:
            connection.say({"type": "end", "seconds": endpointer.seconds})
            return


def _speech_in(content: bytes | None, sound: PcmDecoder, endpointer: Endpointer) -> list[SpeechSegment]:
    """Returns the segments of speech that end in the next piece of sound; without one, the sound ends."""
    came = [sound.samples(piece) for piece in _pieces(content)] if content else [sound.rest()]
    ended = [each for samples in came for each in endpointer.feed(samples)]
    return ended if content else [*ended, *endpointer.finish()]


def _pieces(content: bytes) -> Iterator[bytes]:
    """Yields a frame of samples in pieces of at most `LARGEST_MESSAGE` bytes."""
    for start in range(0, len(content), LARGEST_MESSAGE):
        yield content[start : start + LARGEST_MESSAGE]


def page_event(event: LiveEvent) -> dict[str, Any]:
    """Returns an event as the page takes it."""
    fields: dict[str, Any] = {"number": event.number, "start": round(event.start, 3)}
    if isinstance(event, SpeechStarted):
        return {"type": "began", **fields}
    fields["end"] = round(event.end, 3)
    if isinstance(event, PartialText):
        return {"type": "written", **fields, "text": event.text}
    if isinstance(event, Failed):
        return {"type": "failed", **fields, "sentence": error_reply(event.error)[1]["error"]["message"]}
    transcript = event.transcript
    parts = [
        {"start": round(each.start, 3), "end": round(each.end, 3), "text": each.text} for each in transcript.segments
    ]
    found = {
        "text": transcript.text,
        "language": transcript.language,
        "segments": parts,
        "notes": list(transcript.notes),
    }
    return {"type": "final", **fields, **found, "delay": round(event.delay, 3)}


def live_routes(service: Service) -> list[BaseRoute]:
    """Returns the websocket of the page."""

    async def of_page(socket: WebSocket) -> None:
        await listen(service, socket)

    return [WebSocketRoute("/live/listen", of_page)]
