"""Websockets for a live microphone: the page's own, and transcription sessions of OpenAI's realtime API.

The page sends one JSON object (`model`, `options`, `rate`, `endSilence` in ms), then samples as int16, low byte first,
and `{"type": "commit"}` or `{"type": "stop"}`. It gets objects with `type`: `ready`, `began`, `written`, `final`,
`failed`, `refused` and `end`. Without a model it gets `began` and `spoke` alone: when somebody speaks.

What is kept of a connection is the stretch that is being spoken, and a few that wait for the model. A client that sends
sound faster than the model works is made to wait.
"""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import contextvars
import json
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import BadInput, Cancelled
from workbench.live.stretches import USUAL, ListeningLimits, Stretches
from workbench.live.transcription import (
    Failed,
    FinalText,
    LiveEvent,
    LiveTranscription,
    PartialText,
    SpeechStarted,
    Transcribe,
)
from workbench.openai_api.errors import Refusal
from workbench.registry.handle import OpenSession
from workbench.serving.offers import RuntimeOffer, options_for
from workbench.serving.service import Service, told
from workbench.session.streams import last_result
from workbench.session.values import Transcript

TASK = "transcribe"
RATES = (8000, 96_000)  # Hz
SILENCES = (200, 5000)  # ms
LARGEST_MESSAGE = 1 << 20  # bytes: more than ten seconds of sound
REALTIME_RATE = 24000  # Hz, of OpenAI's realtime API

Say = Callable[[Mapping[str, Any]], None]


class PcmDecoder:
    """Turns the bytes of a connection into samples at 16 kHz."""

    def __init__(self, rate: int):
        self._odd = b""
        self._resample: Callable[[np.ndarray], np.ndarray] = lambda samples: samples
        if rate != SAMPLE_RATE:
            import soxr

            self._resample = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ").resample_chunk

    def samples(self, content: bytes) -> np.ndarray:
        """Returns the next samples, float32 [n], of int16 values."""
        content = self._odd + content
        whole = len(content) // 2 * 2
        self._odd = content[whole:]
        return self._resample(np.frombuffer(content[:whole], "<i2").astype(np.float32) / 32768)


@dataclass(frozen=True)
class LiveRequest:
    """What a client wants to hear of its sound."""

    offer: RuntimeOffer | None  # None: only when somebody speaks
    options: Mapping[str, Any] = field(default_factory=dict)
    rate: int = SAMPLE_RATE
    limits: ListeningLimits = USUAL


def live_request(service: Service, given: Mapping[str, Any]) -> LiveRequest:
    """Returns what the page asks for; raises `BadInput` for what cannot be followed."""
    rate, silence = given.get("rate", SAMPLE_RATE), given.get("endSilence", 400)
    for name, value, (least, most) in (("rate", rate, RATES), ("endSilence", silence, SILENCES)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Refusal(f"{name} is {value!r:.80}; expected a whole number from {least} to {most}", name)
    options = given.get("options") or {}
    if not isinstance(options, Mapping):
        raise Refusal("options are no JSON object", "options")
    offer = service.offer(given["model"], TASK) if given.get("model") else None
    mine = {} if offer is None else options_for(service.pool.registry, offer.card.id, options)
    return LiveRequest(offer, mine, rate, ListeningLimits(silence / 1000))


def transcriber(
    service: Service, offer: RuntimeOffer, options: Mapping[str, Any], stop: threading.Event
) -> tuple[Transcribe, Callable[[], bool], OpenSession]:
    """Returns a function that transcribes samples, one that says whether the model works for somebody else, and the
    session. Setting `stop` ends its work.
    """
    session = service.open(offer, stop)

    def transcribe(samples: np.ndarray) -> Transcript:
        with service.waiting(stop), contextlib.closing(session.stream((samples, SAMPLE_RATE), **options)) as events:
            return last_result(_until(stop, events), Transcript, "the transcription")

    return transcribe, lambda: session.occupied, session


def _until(stop: threading.Event, events: Any) -> Any:
    for event in events:
        if stop.is_set():
            raise Cancelled("the client went away")
        yield event


class Connection:
    """A websocket whose messages are sent in order, from any thread."""

    def __init__(self, socket: WebSocket):
        self.socket = socket
        self.stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()

    def say(self, message: Mapping[str, Any]) -> None:
        """Sends a message soon."""
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._queue.put_nowait, message)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Accepts the connection, and closes it when all is sent; a client that goes away ends the block."""
        await self.socket.accept()
        sending = asyncio.create_task(self._send())
        try:
            with contextlib.suppress(WebSocketDisconnect):
                yield
            self._loop.call_soon(self._queue.put_nowait, None)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await sending
                await self.socket.close()
        finally:
            self.stop.set()
            sending.cancel()

    async def _send(self) -> None:
        while (message := await self._queue.get()) is not None:
            await self.socket.send_text(json.dumps(message, ensure_ascii=False, allow_nan=False))


async def in_thread(function: Callable[..., Any], *given: Any) -> Any:
    """Calls a function in a thread, in the context of the connection."""
    return await asyncio.to_thread(contextvars.copy_context().run, function, *given)


async def listen(service: Service, socket: WebSocket) -> None:
    """Serves the page's microphone."""
    connection = Connection(socket)
    async with connection.open():
        try:
            service.gate.check(socket)
            first = json.loads(await socket.receive_text())
            wanted = await in_thread(live_request, service, first if isinstance(first, dict) else {})
            with service.gate.working(socket, "live"):
                await _hear(service, connection, wanted)
        except (KeyError, ValueError):
            connection.say({"type": "refused", "sentence": "the first message is no JSON object; reload the page"})
        except WebSocketDisconnect:
            raise
        except Exception as error:
            connection.say({"type": "refused", "sentence": told(error)[1]["error"]["message"]})


async def _hear(service: Service, connection: Connection, wanted: LiveRequest) -> None:
    sound = PcmDecoder(wanted.rate)
    if wanted.offer is None:
        await _notice(connection, sound, Stretches(wanted.limits))
        return
    opened = await in_thread(transcriber, service, wanted.offer, wanted.options, connection.stop)
    transcribe, busy, _ = opened
    live = LiveTranscription(transcribe, lambda event: connection.say(page_event(event)), wanted.limits, busy)
    try:
        connection.say({"type": "ready"})
        while True:
            message = await connection.socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code") or 1000)
            if content := message.get("bytes"):
                await in_thread(live.feed, sound.samples(content[:LARGEST_MESSAGE]))
                continue
            kind = json.loads(message.get("text") or "{}").get("type")
            if kind == "commit":
                await in_thread(live.commit)
            elif kind == "stop":
                await in_thread(live.finish)
                connection.say({"type": "end", "seconds": live.seconds})
                return
    finally:
        connection.stop.set()
        await asyncio.to_thread(live.close)


async def _notice(connection: Connection, sound: PcmDecoder, stretches: Stretches) -> None:
    """Says when somebody begins and ends to speak, with places in samples at 16 kHz."""
    connection.say({"type": "ready"})
    speaking = 0
    while True:
        message = await connection.socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code") or 1000)
        if not (content := message.get("bytes")):
            connection.say({"type": "end", "seconds": stretches.seconds})
            return
        ended = stretches.feed(sound.samples(content[:LARGEST_MESSAGE]))
        present = stretches.present()
        for each in (*ended, *([present] if present else [])):
            if each.number > speaking:
                speaking = each.number
                connection.say({"type": "began", "number": each.number, "start": round(each.start, 3)})
        for each in ended:
            spoke = {"type": "spoke", "number": each.number, "start": round(each.start, 3), "end": round(each.end, 3)}
            connection.say(spoke)


def page_event(event: LiveEvent) -> dict[str, Any]:
    """Returns an event as the page takes it."""
    plain: dict[str, Any] = {"number": event.number, "start": round(event.start, 3)}
    if isinstance(event, SpeechStarted):
        return {"type": "began", **plain}
    plain["end"] = round(event.end, 3)
    if isinstance(event, PartialText):
        return {"type": "written", **plain, "text": event.text}
    if isinstance(event, Failed):
        return {"type": "failed", **plain, "sentence": told(event.error)[1]["error"]["message"]}
    heard = event.transcript
    parts = [{"start": round(each.start, 3), "end": round(each.end, 3), "text": each.text} for each in heard.segments]
    found = {"text": heard.text, "language": heard.language, "segments": parts, "notes": list(heard.notes)}
    return {"type": "final", **plain, **found, "delay": round(event.delay, 3)}


# OpenAI's realtime API.


class Realtime:
    """A transcription session: events in, events out.

    The text so far of a stretch may change, and a delta only adds. So a delta has the words on which two texts in a row
    agree, and `completed` has the final text.
    """

    def __init__(self, service: Service, connection: Connection, model: str):
        self._service, self._connection = service, connection
        self._id = f"sess_{secrets.token_hex(12)}"
        self._model, self._language, self._rate, self._silence = model, "", REALTIME_RATE, 500
        self._live: LiveTranscription | None = None
        self._sound = PcmDecoder(self._rate)
        self._items: dict[int, str] = {}
        self._before: str | None = None
        self._sent: dict[int, str] = {}
        self._last: dict[int, list[str]] = {}
        self.say("session.created", session=self._session())

    def say(self, kind: str, **fields: Any) -> None:
        """Sends an event."""
        self._connection.say({"type": kind, "event_id": f"event_{secrets.token_hex(12)}", **fields})

    def refuse(self, error: BaseException, event_id: Any = None) -> None:
        """Sends an error."""
        _, body = told(error)
        self.say("error", error={**body["error"], "event_id": event_id})

    def take(self, event: Mapping[str, Any]) -> None:
        """Follows an event of the client; raises `BadInput` for one that cannot be followed."""
        kind = event.get("type")
        if kind in ("session.update", "transcription_session.update"):
            self._update(event.get("session"))
        elif kind == "input_audio_buffer.append":
            self._hearing().feed(self._sound.samples(_decoded(event.get("audio"))))
        elif kind == "input_audio_buffer.commit":
            self._hearing().commit()
        elif kind == "input_audio_buffer.clear":
            self.close()
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

    def _session(self) -> dict[str, Any]:
        transcription = {"model": self._model or None, "language": self._language or None}
        detection = {"type": "server_vad", "silence_duration_ms": self._silence}
        return {
            "id": self._id,
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": self._rate},
                    "transcription": transcription,
                    "turn_detection": detection,
                }
            },
        }

    def _update(self, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise Refusal("session is no object", "session")
        if given.get("type", "transcription") != "transcription":
            raise Refusal("this server has sessions of the type transcription; set it", "session.type")
        place = (given.get("audio") or {}).get("input") or {}
        form = place.get("format") or {}
        if form.get("type", "audio/pcm") != "audio/pcm":
            raise Refusal(f"the format is {form.get('type')!r:.80}; expected audio/pcm", "session.audio.input.format")
        wanted = place.get("transcription") or {}
        detection = place.get("turn_detection") or {}
        known = live_request(
            self._service,
            {
                "rate": form.get("rate", self._rate),
                "endSilence": detection.get("silence_duration_ms", self._silence),
                "model": wanted.get("model", self._model),
                "options": {"language": wanted["language"]} if wanted.get("language") else {},
            },
        )
        self.close()
        self._rate, self._silence = known.rate, round(1000 * known.limits.end_silence)
        self._model, self._language = wanted.get("model", self._model), wanted.get("language") or ""
        self._sound = PcmDecoder(self._rate)
        self.say("session.updated", session=self._session())

    def _hearing(self) -> LiveTranscription:
        if self._live is None:
            options = {"language": self._language} if self._language else {}
            given = {"model": self._model, "endSilence": self._silence, "options": options}
            wanted = live_request(self._service, given)
            if wanted.offer is None:
                raise Refusal("the session has no model; name one in session.update", "session", status=404)
            transcribe, busy, _ = transcriber(self._service, wanted.offer, wanted.options, self._connection.stop)
            self._live = LiveTranscription(transcribe, self._on_event, wanted.limits, busy)
        return self._live

    def _on_event(self, event: LiveEvent) -> None:
        item = self._items.setdefault(event.number, f"item_{secrets.token_hex(10)}")
        about = {"item_id": item, "content_index": 0}
        prefix = "conversation.item.input_audio_transcription"
        if isinstance(event, SpeechStarted):
            self.say("input_audio_buffer.speech_started", audio_start_ms=round(1000 * event.start), item_id=item)
        elif isinstance(event, PartialText):
            words = event.text.split(" ")
            agreed = _agreed(self._last.get(event.number, []), words)
            self._last[event.number] = words
            self._add(event.number, " ".join(agreed), about)
        else:
            self.say("input_audio_buffer.speech_stopped", audio_end_ms=round(1000 * event.end), item_id=item)
            self.say("input_audio_buffer.committed", item_id=item, previous_item_id=self._before)
            self._before = item
            if isinstance(event, FinalText):
                self._add(event.number, event.transcript.text, about)
                seconds = round(event.end - event.start, 3)
                usage = {"type": "duration", "seconds": seconds}
                self.say(f"{prefix}.completed", **about, transcript=event.transcript.text, usage=usage)
            else:
                self.say(f"{prefix}.failed", **about, error=told(event.error)[1]["error"])
            for kept in (self._items, self._sent, self._last):
                kept.pop(event.number, None)

    def _add(self, number: int, text: str, about: Mapping[str, Any]) -> None:
        sent = self._sent.get(number, "")
        if len(text) > len(sent) and text.startswith(sent):
            self._sent[number] = text
            self.say("conversation.item.input_audio_transcription.delta", **about, delta=text[len(sent) :])


def _agreed(before: list[str], now: list[str]) -> list[str]:
    """Returns the words at the beginning on which two texts agree."""
    count = next((n for n, (one, two) in enumerate(zip(before, now)) if one != two), min(len(before), len(now)))
    return now[:count]


def _decoded(given: Any) -> bytes:
    if not isinstance(given, str) or len(given) > LARGEST_MESSAGE * 4 // 3:
        raise Refusal(f"audio is no base64 text of at most {LARGEST_MESSAGE >> 20} MB", "audio")
    try:
        return binascii.a2b_base64(given.encode("ascii"), strict_mode=True)
    except ValueError:
        raise Refusal("audio is not base64", "audio") from None


async def realtime(service: Service, socket: WebSocket) -> None:
    """Serves a realtime transcription session."""
    connection = Connection(socket)
    async with connection.open():
        try:
            service.gate.check(socket)
            with service.gate.working(socket, "live"):
                await _converse(service, connection)
        except WebSocketDisconnect:
            raise
        except Exception as error:
            connection.say({"type": "error", **told(error)[1]})


async def _converse(service: Service, connection: Connection) -> None:
    session = Realtime(service, connection, connection.socket.query_params.get("model", ""))
    try:
        while True:
            text = await connection.socket.receive_text()
            event: Any = None
            try:
                event = json.loads(text)
                if not isinstance(event, dict):
                    raise BadInput("an event is a JSON object with a type")
                await in_thread(session.take, event)
            except WebSocketDisconnect:
                raise
            except (ValueError, RecursionError):
                session.refuse(Refusal("an event is no JSON; expected an object with a type"))
            except Exception as error:
                session.refuse(error, event.get("event_id") if isinstance(event, dict) else None)
    except KeyError:  # a message of bytes
        session.refuse(Refusal("events are texts; a message of bytes came"))
    finally:
        connection.stop.set()
        await asyncio.to_thread(session.close)


def live_routes(service: Service) -> list[BaseRoute]:
    """Returns the websockets."""

    async def of_page(socket: WebSocket) -> None:
        await listen(service, socket)

    async def of_programs(socket: WebSocket) -> None:
        await realtime(service, socket)

    return [WebSocketRoute("/live/listen", of_page), WebSocketRoute("/v1/realtime", of_programs)]
