"""A websocket that receives sound: its messages, its samples, and the model that transcribes them.

This file knows neither the messages of the page nor those of OpenAI's realtime API.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import Cancelled
from workbench.core.visitors import seconds_in_words
from workbench.live.endpointing import DEFAULT_LIMITS, EndpointingLimits
from workbench.live.transcription import Failed, FinalText, LiveEvent, Transcribe
from workbench.openai_api.errors import Refusal, close_code, close_reason
from workbench.registry.handle import OpenSession
from workbench.serving.admission.subprotocols import chosen_subprotocol
from workbench.serving.figures import LiveRecording
from workbench.serving.offers import RuntimeOffer
from workbench.serving.service import Service, error_reply
from workbench.serving.transcription_options import checked_request
from workbench.session.streams import last_result
from workbench.session.values import Transcript

TASK = "transcribe"
RATES = (8000, 96_000)  # Hz
SILENCES = (200, 5000)  # ms
LARGEST_MESSAGE = 1 << 20  # bytes: more than ten seconds of sound
MAX_UNSENT = 256  # messages that wait for a client; then the server receives nothing until the client has read some
SENDING_SECONDS = 60.0  # how long a client may take to read a message
MAX_RECEIVED = 16 << 20  # bytes that are received before they are used: minutes of sound, while a model loads
MESSAGE_BYTES = 200  # of memory, beside the content of a message


class PcmDecoder:
    """Turns the bytes of a connection into samples at 16 kHz."""

    def __init__(self, rate: int):
        self._rate, self._odd_byte = rate, b""
        self._resample = self._resampler()

    def _resampler(self) -> Callable[..., np.ndarray]:
        if self._rate == SAMPLE_RATE:
            return lambda samples, last=False: samples
        import soxr

        return soxr.ResampleStream(self._rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ").resample_chunk

    def samples(self, content: bytes) -> np.ndarray:
        """Returns the next samples, float32 [n], of int16 values."""
        content = self._odd_byte + content
        complete = len(content) // 2 * 2
        self._odd_byte = content[complete:]
        return self._resample(np.frombuffer(content[:complete], "<i2").astype(np.float32) / 32768)

    def rest(self) -> np.ndarray:
        """Returns the samples that the resampler still holds, float32 [n]. The next samples start a new recording."""
        samples = self._resample(np.empty(0, np.float32), last=True)
        self._resample, self._odd_byte = self._resampler(), b""
        return samples


@dataclass(frozen=True)
class LiveModel:
    """The model that transcribes the sound of a client, and its checked options."""

    offer: RuntimeOffer
    options: Mapping[str, Any]


def live_model(
    service: Service, name: Any, fields: Sequence[tuple[str, str]] = (), options: Mapping[str, Any] | None = None
) -> LiveModel:
    """Returns the model that a client names, with its options; raises `BadInput` for what cannot be followed.

    Args:
        fields: those of OpenAI's API, each a name and a text.
        options: of the model, by name.
    """
    offer = service.offer(name, TASK)
    return LiveModel(offer, checked_request(service.pool.registry, offer.card, fields, options).options)


@dataclass(frozen=True)
class LiveRequest:
    """The page's request for its sound: a transcription, or only the times of speech."""

    model: LiveModel | None  # None: only when somebody speaks
    rate: int = SAMPLE_RATE
    limits: EndpointingLimits = DEFAULT_LIMITS


def live_request(service: Service, fields: Mapping[str, Any]) -> LiveRequest:
    """Returns what the page asks for; raises `BadInput` for an invalid value."""
    rate, silence = fields.get("rate", SAMPLE_RATE), fields.get("endSilence", 400)
    check_whole(rate, "rate", RATES)
    check_whole(silence, "endSilence", SILENCES)
    options = fields.get("options") or {}
    if not isinstance(options, Mapping):
        raise Refusal("options are not a JSON object", "options")
    model = live_model(service, fields["model"], options=options) if fields.get("model") else None
    return LiveRequest(model, rate, EndpointingLimits(silence / 1000))


def check_whole(value: Any, name: str, limits: tuple[int, int]) -> int:
    """Returns a value that a client sent, if it is a whole number within the bounds; raises `Refusal` otherwise."""
    minimum, maximum = limits
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise Refusal(f"{name} is {value!r:.80}; expected a whole number from {minimum} to {maximum}", name)
    return value


def transcriber(
    service: Service, model: LiveModel, stop: threading.Event
) -> tuple[Transcribe, Callable[[], bool], OpenSession]:
    """Returns a function that transcribes samples, one that says whether the model works for somebody else, and the
    session. Setting `stop` ends its work.
    """
    session = service.open(model.offer, stop)

    def transcribe(samples: np.ndarray) -> Transcript:
        with (
            service.waiting(stop),
            contextlib.closing(session.stream((samples, SAMPLE_RATE), **model.options)) as events,
        ):
            return last_result(_until(stop, events), Transcript, "the transcription")

    return transcribe, lambda: session.occupied, session


def counted(
    service: Service, recording: LiveRecording, model: LiveModel, on_event: Callable[[LiveEvent], None]
) -> Callable[[LiveEvent], None]:
    """Returns a function that counts the segments among the events of a transcription, and passes the events on."""
    recording.model = model.offer.cell.value

    def take(event: LiveEvent) -> None:
        if isinstance(event, FinalText | Failed):
            outcome = "completed" if isinstance(event, FinalText) else "failed"
            service.figures.segment(recording, event.end - event.start, outcome)
        on_event(event)

    return take


def _until(stop: threading.Event, events: Any) -> Any:
    for event in events:
        if stop.is_set():
            raise Cancelled("the client went away")
        yield event


class Connection:
    """A websocket whose messages are sent in order, from any thread.

    It receives ahead of `receive`, within a limit. So the answers to its pings are seen while a model loads, and
    `stop` is set as soon as the client leaves. It has threads of its own: the calls of many connections may wait for
    models, and the threads of the event loop are few.
    """

    def __init__(self, socket: WebSocket, idle_seconds: float):
        self.socket = socket
        self._idle_seconds = idle_seconds
        self.stop = threading.Event()
        self.close_code, self.close_reason = 1000, ""  # with which the connection ends, if the server ends it
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        self._received: asyncio.Queue[Message] = asyncio.Queue()
        self._received_bytes = 0
        self._changed = asyncio.Event()  # set when there is room for messages to come
        self._left: Message | None = None  # the message that the client has left
        self._receiving: asyncio.Task[None] | None = None  # begins with the first message that is asked for
        self._threads = ThreadPoolExecutor(2, "live recording")  # the second ends work that occupies the first

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function in a thread, in the context of the connection."""
        context = contextvars.copy_context()
        return await self._loop.run_in_executor(self._threads, context.run, function, *arguments)

    def say(self, message: Mapping[str, Any]) -> None:
        """Puts a message into the queue of messages to send."""
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._put, message)

    def refuse(self, error: BaseException, form: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> int:
        """Puts an error that ends the connection into the queue; returns the status that a request would get.

        Args:
            form: returns the message for the error in OpenAI's form.
        """
        status, body = error_reply(error)
        self.close_code, self.close_reason = close_code(status), close_reason(body["error"]["message"])
        self.say(form(body["error"]))
        return status

    def _put(self, message: Mapping[str, Any] | None) -> None:
        self._queue.put_nowait(message)
        if self._queue.qsize() > MAX_UNSENT:
            self._room.clear()

    async def receive(self) -> Message:
        """Returns the next message of the client, when the client has read most of what was sent.

        Raises `Refusal` if none comes for too long, and `WebSocketDisconnect` if the client has left or does not read.
        """
        if self._receiving is None:
            self._receiving = asyncio.create_task(self._receive_ahead())
        await self._room.wait()
        if self._sending.done():
            raise WebSocketDisconnect
        try:
            message = await asyncio.wait_for(self._received.get(), self._idle_seconds)
        except TimeoutError:
            raise Refusal(
                f"nothing came for {seconds_in_words(self._idle_seconds)}, so the connection was closed", status=408
            ) from None
        self._received_bytes -= _memory(message)
        self._changed.set()
        if self._left is not None:
            raise WebSocketDisconnect(self._left.get("code") or 1000)
        return message

    async def _receive_ahead(self) -> None:
        """Receives messages for `receive` as they come."""
        while self._left is None:
            message = await self.socket.receive()
            if message["type"] == "websocket.disconnect":
                self._left = message
                self.stop.set()
            self._received_bytes += _memory(message)
            self._received.put_nowait(message)
            await asyncio.sleep(0)  # a client that sends thousands of small messages must not hold up others
            while self._received_bytes > MAX_RECEIVED:
                self._changed.clear()
                await self._changed.wait()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Accepts the connection, and closes it when everything is sent. The block ends if the client goes away."""
        await self.socket.accept(chosen_subprotocol(self.socket.scope))
        self._sending = asyncio.create_task(self._send())
        try:
            with contextlib.suppress(WebSocketDisconnect):
                yield
            self._end_receiving()
            self._loop.call_soon(self._put, None)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
                await self._sending
                await self.socket.close(self.close_code, self.close_reason)
        finally:
            self.stop.set()
            self._sending.cancel()
            self._end_receiving()
            self._threads.shutdown(wait=False)

    def _end_receiving(self) -> None:
        """Receives nothing more: a client whose connection ends takes no memory."""
        if self._receiving is not None:
            self._receiving.cancel()

    async def _send(self) -> None:
        try:
            while (message := await self._queue.get()) is not None:
                if self._queue.qsize() < MAX_UNSENT:
                    self._room.set()
                text = json.dumps(message, ensure_ascii=False, allow_nan=False)
                async with asyncio.timeout(SENDING_SECONDS):
                    await self.socket.send_text(text)
        finally:
            self._room.set()


def _memory(message: Message) -> int:
    """Returns about how many bytes of memory a message takes."""
    return len(message.get("bytes") or message.get("text") or "") + MESSAGE_BYTES
