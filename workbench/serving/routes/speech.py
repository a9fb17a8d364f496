"""The route for speech: a model speaks a text. If the format allows it, the sound is sent while it is generated.

Raw samples have 24,000 Hz, as OpenAI's clients expect; a file has the model's own rate.
"""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

import numpy as np
from starlette.responses import Response

from workbench.core.errors import Cancelled, WorkbenchError
from workbench.core.options import build_options, option_specs
from workbench.families import FAMILIES
from workbench.families.family import CONVERSE
from workbench.openai_api.errors import Refusal
from workbench.openai_api.sound_formats import PCM, encode_sound
from workbench.openai_api.speech_request import PCM_RATE, SpeechRequest, read_speech_request
from workbench.serving.offers import RuntimeOffer
from workbench.serving.routes.bodies import read_json
from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST, Streamed, all_events, events_of
from workbench.serving.routes.transcriptions import EVENTS, encode_events
from workbench.serving.service import Call, error_reply
from workbench.session.conversation import Answer, AudioPiece, ConversationEvent
from workbench.session.values import CONVERSATION

TYPES = {"wav": "audio/wav", "flac": "audio/flac", "mp3": "audio/mpeg", "opus": "audio/ogg", PCM: "audio/pcm"}
SAY = "say "  # begins the request to a model to say a text
AUDIO_ONLY = {"modalities": "audio"}


async def speak(call: Call) -> Any:
    """Answers a request for speech."""
    body = await read_json(call.request, call.service.gate.largest_json)
    offer = await call.choose(body.get("model"), CONVERSE)
    family = FAMILIES[offer.card.family]
    if family.input != CONVERSATION:
        raise Refusal(f"{offer.card.id} answers in text; expected a model that speaks", "model", "model_not_found")
    options_class: Any = family.chat_options_class or family.options_class
    names = [spec.name for spec in option_specs(options_class) if spec.name not in AUDIO_ONLY]
    request = read_speech_request(body, names)
    build_options(options_class, {**request.options, **AUDIO_ONLY}, offer.card.id)
    call.begin()

    def work(stop: threading.Event) -> Generator[ConversationEvent, None, None]:
        return speech_events(call, offer, request, stop)

    if request.events or request.form == PCM:
        return await _streamed(call, request, events_of(work))
    events = await all_events(call.request, work)
    answer = events[-1] if events else None
    if not isinstance(answer, Answer) or answer.audio is None or not answer.sample_rate:
        raise WorkbenchError("the model said nothing; ask in other words")
    call.seconds = answer.audio_seconds
    return Response(encode_sound(answer.audio, answer.sample_rate, request.form), media_type=TYPES[request.form])


def speech_events(
    call: Call, offer: RuntimeOffer, request: SpeechRequest, stop: threading.Event
) -> Generator[ConversationEvent, None, None]:
    """Yields the events of an answer that says the input."""
    session = call.service.open(offer, stop)
    system = "\n".join(filter(None, (f"voice: {request.voice}" if request.voice else "", request.instructions)))
    text = request.input if request.input.lower().startswith(SAY) else SAY + request.input
    messages = [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": text}]
    events = session.converse_stream(messages, **{**request.options, **AUDIO_ONLY})
    with call.service.waiting(stop), contextlib.closing(events):
        for event in events:
            if stop.is_set():
                raise Cancelled("the client went away")
            yield event


async def _streamed(call: Call, request: SpeechRequest, events: AsyncGenerator[ConversationEvent, None]) -> Streamed:
    """Returns the stream of the sound when its first samples are there. Until then the request can be refused."""
    first: AudioPiece | None = None
    try:
        async for event in events:
            if isinstance(event, AudioPiece) and len(event.samples):
                first = event
                break
    except BaseException:
        await events.aclose()
        raise
    if first is None:
        await events.aclose()
        raise WorkbenchError("the model said nothing; ask in other words")
    call.last()
    kind = EVENTS if request.events else TYPES[PCM]
    headers = {"x-sample-rate": str(PCM_RATE if request.form == PCM else first.sample_rate)}
    return Streamed(_parts(call, request, first, events), kind, headers)


async def _parts(
    call: Call, request: SpeechRequest, first: AudioPiece, following: AsyncGenerator[ConversationEvent, None]
) -> AsyncGenerator[bytes, None]:
    status, encoder, sound, tokens = CLIENT_CLOSED_REQUEST, PcmEncoder(first.sample_rate), [first.samples], 0
    try:
        async with contextlib.aclosing(following):
            if request.form == PCM:
                yield _sent(request, encoder.feed(first.samples))
            async for event in following:
                if isinstance(event, Answer):
                    tokens = len(event.token_ids)
                elif isinstance(event, AudioPiece) and len(event.samples):
                    if request.form == PCM:
                        yield _sent(request, encoder.feed(event.samples))
                    else:
                        sound.append(event.samples)
            last = (
                encoder.feed(np.empty(0, np.float32), last=True)
                if request.form == PCM
                else encode_sound(np.concatenate(sound), first.sample_rate, request.form)
            )
            yield _sent(request, last)
            if request.events:
                usage = {"input_tokens": 0, "output_tokens": tokens, "total_tokens": tokens}
                yield encode_events([{"type": "speech.audio.done", "usage": usage}])
            status = 200
    except Exception as error:
        status, body = error_reply(error)
        if request.events:
            yield encode_events([dict(body)])
    finally:
        call.end(status)


def _sent(request: SpeechRequest, sound: bytes) -> bytes:
    if not request.events or not sound:
        return sound
    return encode_events([{"type": "speech.audio.delta", "audio": base64.b64encode(sound).decode()}])


class PcmEncoder:
    """Turns samples of a model's rate into raw 16-bit samples of 24,000 Hz, piece by piece."""

    def __init__(self, rate: int):
        import soxr

        self._stream = soxr.ResampleStream(rate, PCM_RATE, 1, dtype="float32", quality="HQ")

    def feed(self, samples: np.ndarray, last: bool = False) -> bytes:
        """Returns the bytes of the next samples."""
        return encode_sound(self._stream.resample_chunk(samples.astype(np.float32), last=last), PCM_RATE, PCM)
