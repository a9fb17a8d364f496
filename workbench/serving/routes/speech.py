"""The route for speech: a model speaks a text. If the format allows it, the sound is sent while it is generated.

Raw samples have 24,000 Hz, as OpenAI's clients expect; a file has the model's own rate.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any

import numpy as np
from starlette.responses import Response

from workbench.core.errors import Cancelled
from workbench.core.options import build_options, option_specs
from workbench.families import FAMILIES
from workbench.families.family import CONVERSE
from workbench.openai_api.errors import Refusal
from workbench.openai_api.sound_formats import PCM, encode_sound
from workbench.openai_api.speech_request import PCM_RATE, SpeechRequest, read_speech_request
from workbench.serving.offers import RuntimeOffer
from workbench.serving.routes.bodies import read_json
from workbench.serving.routes.request_work import all_events, events_of
from workbench.serving.routes.streams import EVENTS, encode_events, streamed
from workbench.serving.service import Call
from workbench.session.conversation import Answer, AudioPiece, ConversationEvent
from workbench.session.values import CONVERSATION

TYPES = {"wav": "audio/wav", "flac": "audio/flac", "mp3": "audio/mpeg", "opus": "audio/ogg", PCM: "audio/pcm"}
SAY = "say "  # begins the request to a model to say a text
AUDIO_ONLY = {"modalities": "audio"}
NOT_HERE = ("probabilities",)  # options whose result this route has no place for
SILENT = "the model said nothing"
FORM = "response_format"  # the field with the format of the sound


async def speak(call: Call) -> Any:
    """Answers a request for speech."""
    body = await read_json(call.request, call.service.gate.largest_json)
    offer = await call.choose(body.get("model"), CONVERSE, _speaks)
    family = FAMILIES[offer.card.family]
    if not _speaks(offer):
        raise Refusal(f"{offer.card.id} answers in text; expected a model that speaks", "model", "model_not_found")
    options_class: Any = family.chat_options_class or family.options_class
    names = [spec.name for spec in option_specs(options_class) if spec.name not in (*AUDIO_ONLY, *NOT_HERE)]
    request = read_speech_request(body, names)
    build_options(options_class, {**request.options, **AUDIO_ONLY}, offer.card.id)
    call.begin()

    def work(stop: threading.Event) -> Generator[ConversationEvent, None, None]:
        return speech_events(call, offer, request, stop)

    if request.events or request.form == PCM:
        speech = SpeechStream(call, request)
        kind = EVENTS if request.events else TYPES[PCM]
        return await streamed(call, speech.parts(events_of(work)), media_type=kind, headers=speech.headers)
    events = await all_events(call.request, work)
    answer = events[-1] if events else None
    if not isinstance(answer, Answer) or answer.audio is None or not answer.sample_rate:
        raise _silent(answer)
    call.seconds = answer.audio_seconds
    content = await asyncio.to_thread(encode_sound, answer.audio, answer.sample_rate, request.form, FORM)
    return Response(content, media_type=TYPES[request.form])


def _speaks(offer: RuntimeOffer) -> bool:
    return FAMILIES[offer.card.family].input == CONVERSATION


def _silent(answer: Any) -> Refusal:
    """Returns the refusal of a request to which a model said nothing: if repeated, it would get the same answer."""
    why = "; ".join(answer.notes) if isinstance(answer, Answer) and answer.notes else SILENT
    return Refusal(f"{why}; ask in other words, or allow a longer answer", "input", "no_speech")


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


class SpeechStream:
    """The parts of a stream of speech: raw samples as they come, or a file at the end."""

    def __init__(self, call: Call, request: SpeechRequest):
        self._call, self._request = call, request
        self._rate = PCM_RATE

    def headers(self) -> dict[str, str]:
        """Returns the header with the sample rate of the sound."""
        return {"x-sample-rate": str(PCM_RATE if self._request.form == PCM else self._rate)}

    async def parts(self, events: AsyncGenerator[ConversationEvent, None]) -> AsyncGenerator[bytes, None]:
        """Yields the parts, the first one with the first samples. Raises `Refusal` if there are none."""
        request, answer, encoder = self._request, None, None
        sound: list[np.ndarray] = []  # for a file
        async with contextlib.aclosing(events):
            async for event in events:
                if isinstance(event, Answer):
                    answer = event
                elif isinstance(event, AudioPiece) and len(event.samples):
                    if encoder is None:
                        self._rate, encoder = event.sample_rate, PcmEncoder(event.sample_rate)
                    if request.form == PCM:
                        yield _sent(request, encoder.feed(event.samples))
                    else:
                        sound.append(event.samples)
                        yield b""
        if encoder is None or answer is None:
            raise _silent(answer)
        if request.form == PCM:
            yield _sent(request, encoder.feed(np.empty(0, np.float32), last=True))
        else:
            yield await asyncio.to_thread(self._file, sound)
        self._call.seconds = answer.audio_seconds
        if request.events:
            yield encode_events([{"type": "speech.audio.done", "usage": _usage(answer)}])

    def _file(self, sound: Sequence[np.ndarray]) -> bytes:
        return _sent(self._request, encode_sound(np.concatenate(sound), self._rate, self._request.form, FORM))


def _usage(answer: Answer) -> dict[str, int]:
    read, written = answer.prompt_rows, len(answer.token_ids)
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}


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
