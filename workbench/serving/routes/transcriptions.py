"""The route for transcriptions: a recording in a form, its transcript in any of OpenAI's forms, or as a stream."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

from starlette.responses import Response

from workbench.audio.check import check_sound
from workbench.core.errors import BadInput, Cancelled, WorkbenchError
from workbench.openai_api.errors import Refusal
from workbench.openai_api.transcription_answer import TranscriptionStream, transcription
from workbench.openai_api.transcription_request import TranscriptionRequest
from workbench.serving.offers import RuntimeOffer
from workbench.serving.routes.bodies import Form, read_form
from workbench.serving.routes.request_work import all_events, events_of
from workbench.serving.routes.streams import encode_events, streamed
from workbench.serving.service import Call
from workbench.serving.transcription_options import checked_request
from workbench.session.values import Event, Transcript

TASK = "transcribe"


async def transcribe(call: Call) -> Any:
    """Answers a request for a transcription."""
    resources = contextlib.AsyncExitStack()
    try:
        gate = call.service.gate
        form = await resources.enter_async_context(read_form(call.request, gate.largest_body, gate.largest_text))
        offer, request = await read_request(call, form)
        call.begin()

        def work(stop: threading.Event) -> Generator[Event, None, None]:
            return transcript_events(call, offer, form, request, stop)

        if request.stream:
            return await streamed(call, _parts(call, resources, events_of(work)))
        for event in await all_events(call.request, work):
            if isinstance(event, Transcript):
                call.seconds = event.audio_seconds
                body, kind = await asyncio.to_thread(transcription, event, request)
                return Response(body, media_type=kind)
        raise WorkbenchError("the session ended without a transcript")
    finally:
        if not call.lasts:
            await resources.aclose()


async def read_request(call: Call, form: Form) -> tuple[RuntimeOffer, TranscriptionRequest]:
    """Returns the model and the request in a form; raises `Refusal`, or `BadInput` for an option's value."""
    models = [value for name, value in form.fields if name == "model"]
    if len(models) > 1:
        raise Refusal(f"the form has the field model {len(models)} times; expected it once", "model")
    offer = await call.choose(models[0] if models else "", TASK)
    fields = [(name, value) for name, value in form.fields if name != "model"]
    return offer, checked_request(call.service.pool.registry, offer.card, fields)


def transcript_events(
    call: Call, offer: RuntimeOffer, form: Form, request: TranscriptionRequest, stop: threading.Event
) -> Generator[Event, None, None]:
    """Yields the events of a transcription; the name that the client gave is in the sentences of errors."""
    try:
        check_sound(form.path)  # before a model is loaded
        session = call.service.open(offer, stop)
        events = session.stream(str(form.path), **request.options)
        with call.service.waiting(stop), contextlib.closing(events):
            for event in events:
                if stop.is_set():
                    raise Cancelled("the client went away")
                yield event
    except BadInput as error:
        raise BadInput(str(error).replace(form.path.name, form.name)) from error


async def _parts(
    call: Call, resources: contextlib.AsyncExitStack, events: AsyncGenerator[Event, None]
) -> AsyncGenerator[bytes, None]:
    writing = TranscriptionStream()
    async with resources, contextlib.aclosing(events):
        async for event in events:
            if isinstance(event, Transcript):
                call.seconds = event.audio_seconds
            yield encode_events(writing.events(event))
