"""The route for transcriptions: a recording in a form, its transcript in any of OpenAI's forms, or as a stream."""

from __future__ import annotations

import contextlib
import json
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
from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST, Streamed, all_events, events_of
from workbench.serving.service import Call, error_reply
from workbench.serving.transcription_options import checked_request
from workbench.session.values import Event, Transcript

TASK = "transcribe"
EVENTS = "text/event-stream"


async def transcribe(call: Call) -> Any:
    """Answers a request for a transcription."""
    resources = contextlib.AsyncExitStack()
    try:
        form = await resources.enter_async_context(read_form(call.request, call.service.gate.largest_body))
        offer, request = await read_request(call, form)
        call.begin()

        def work(stop: threading.Event) -> Generator[Event, None, None]:
            return transcript_events(call, offer, form, request, stop)

        if request.stream:
            return await _streamed(call, resources, events_of(work))
        for event in await all_events(call.request, work):
            if isinstance(event, Transcript):
                call.seconds = event.audio_seconds
                body, kind = transcription(event, request)
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


async def _streamed(call: Call, resources: contextlib.AsyncExitStack, events: AsyncGenerator[Event, None]) -> Streamed:
    """Returns the stream of a transcription when its first event is there. Until then the request can be refused."""
    try:
        first = await anext(events)
    except BaseException:
        await events.aclose()
        raise
    call.last()
    return Streamed(_parts(call, resources, first, events), EVENTS)


async def _parts(
    call: Call, resources: contextlib.AsyncExitStack, first: Event, events: AsyncGenerator[Event, None]
) -> AsyncGenerator[bytes, None]:
    writing, status = TranscriptionStream(), CLIENT_CLOSED_REQUEST
    try:
        async with resources, contextlib.aclosing(events):
            yield encode_events(writing.events(first))
            async for event in events:
                if isinstance(event, Transcript):
                    call.seconds = event.audio_seconds
                if part := encode_events(writing.events(event)):
                    yield part
            status = 200
    except Exception as error:
        status, body = error_reply(error)
        yield encode_events([dict(body)])
    finally:
        call.end(status)


def encode_events(events: list[dict[str, Any]]) -> bytes:
    """Returns server-sent events, each with its type as OpenAI's API names it."""
    headers = (f"event: {each['type']}\n" if "type" in each else "" for each in events)
    lines = (f"data: {json.dumps(each, ensure_ascii=False, allow_nan=False)}\n\n" for each in events)
    return "".join(name + line for name, line in zip(headers, lines)).encode()
