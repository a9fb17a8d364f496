"""The route for completions: a language model continues a text as written."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from typing import Any

from starlette.responses import JSONResponse

from workbench.core.errors import Cancelled, WorkbenchError
from workbench.core.options import option_specs
from workbench.openai_api.chat_answer import DONE
from workbench.openai_api.completion import (
    CompletionRequest,
    completion_chunk,
    completion_usage,
    read_completion_request,
    usage_of,
)
from workbench.openai_api.logprobs import REQUESTED_ALTERNATIVES
from workbench.openai_api.stopping import Stopping
from workbench.serving.offers import RuntimeOffer, options_for
from workbench.serving.routes.bodies import read_json
from workbench.serving.routes.request_work import all_events, events_of
from workbench.serving.routes.streams import encode_events, streamed
from workbench.serving.service import Call
from workbench.session.values import Generation, Piece

TASK = "generate"
UNSHOWN = ("alternatives", "chat", "system", "thinking")  # options that this route sets, or that are for chats


async def complete(call: Call) -> Any:
    """Answers a request for a completion."""
    body = await read_json(call.request, call.service.gate.largest_json)
    offer = await call.choose(body.get("model"), TASK)
    registry = call.service.pool.registry
    specs = option_specs(registry.options_class(offer.card.id))
    request = read_completion_request(body, [spec.name for spec in specs if spec.name not in UNSHOWN])
    options_for(registry, offer.card.id, request.options)
    call.begin()

    def work(stop: threading.Event) -> Generator[Piece | Generation, None, None]:
        return completion_events(call, offer, request, stop)

    if request.stream:
        return await streamed(call, _parts(request, events_of(work)))
    events = await all_events(call.request, work)
    last = events[-1] if events else None
    if not isinstance(last, Generation):
        raise WorkbenchError("the model ended without a text")
    pieces = [each for each in events if isinstance(each, Piece)]
    found = completion_chunk(request, last.text, pieces, last.finish)
    return JSONResponse({**found, "usage": usage_of(last.prompt_tokens, len(last.tokens))})


def completion_events(
    call: Call, offer: RuntimeOffer, request: CompletionRequest, stop: threading.Event
) -> Generator[Piece | Generation, None, None]:
    """Yields the pieces of a text up to the first of the request's stop texts, and last the whole of it."""
    session = call.service.open(offer, stop)
    options = {**request.options, "chat": False}
    if request.logprobs is not None:
        options["alternatives"] = REQUESTED_ALTERNATIVES
    stopping, ids, prompt_tokens = Stopping(request.stops), list[int](), 0
    with call.service.waiting(stop), contextlib.closing(session.generate_stream(request.prompt, **options)) as events:
        for event in events:
            if stop.is_set():
                raise Cancelled("the client went away")
            if isinstance(event, Generation):
                if remainder := stopping.feed("", last=True):
                    yield Piece(remainder, ())
                yield event if not request.stops else replace(event, text=stopping.text)
                return
            ids += event.tokens
            prompt_tokens = event.prompt_tokens
            yield replace(event, text=stopping.feed(event.text))
            if stopping.ended:
                break
    yield Generation(offer.card.id, offer.cell.runtime, stopping.text, tuple(ids), prompt_tokens, "stop", 0.0, 0.0, 0.0)


async def _parts(
    request: CompletionRequest, events: AsyncGenerator[Piece | Generation, None]
) -> AsyncGenerator[bytes, None]:
    sent_characters = 0
    async with contextlib.aclosing(events):
        async for event in events:
            yield _part(request, event, sent_characters)
            sent_characters += len(event.text)
    yield DONE.encode()


def _part(request: CompletionRequest, event: Piece | Generation, sent_characters: int) -> bytes:
    if isinstance(event, Piece):
        reports_tokens = request.logprobs is not None and event.tokens
        return (
            encode_events([completion_chunk(request, event.text, [event], offset=sent_characters)])
            if event.text or reports_tokens
            else b""
        )
    found = [completion_chunk(request, "", (), event.finish)]
    if request.include_usage:
        found.append(completion_usage(request, event.prompt_tokens, len(event.tokens)))
    return encode_events(found)
