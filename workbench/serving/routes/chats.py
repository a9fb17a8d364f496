"""The route for chats: text and speech in, text and speech out, and embeddings as parts of a text."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.responses import JSONResponse

from workbench.core.errors import Cancelled, WorkbenchError
from workbench.core.options import build_options, option_specs
from workbench.embeddings import Embedding, read_embedding
from workbench.embeddings.prompt import mismatch
from workbench.families import FAMILIES
from workbench.families.family import CONVERSE
from workbench.families.language.directory import PLACEHOLDER
from workbench.openai_api.chat_answer import DONE, ChatAnswer, events
from workbench.openai_api.chat_request import ChatRequest, FollowedField, read_chat_request
from workbench.openai_api.errors import Refusal
from workbench.openai_api.logprobs import REQUESTED_ALTERNATIVES, read_chat_logprobs
from workbench.openai_api.stopping import Stopping, read_stops
from workbench.pipelines.conversation.spoken_messages import checked_messages
from workbench.pipelines.text.text_conversation import text_answer
from workbench.runtimes.vllm.embedding_parts.content_part import PART, is_embedding_part, read_part
from workbench.serving.offers import RuntimeOffer, check_places
from workbench.serving.routes.bodies import read_json
from workbench.serving.routes.request_work import all_events, events_of
from workbench.serving.routes.streams import streamed
from workbench.serving.service import Call, OnActivity, ignore_activity
from workbench.session.conversation import Answer, AnswerStart, AudioPiece, ConversationEvent
from workbench.session.values import PROMPT, Piece

UNSHOWN = ("alternatives", "chat", "batch_size")  # options that this route sets itself
BEFORE_STREAMING = 2  # events that come before a stream's first byte: after them, hardly anything can be refused
STOP = "stop"


async def chat(call: Call) -> Any:
    """Answers a request for a chat completion."""
    body = await read_json(call.request, call.service.gate.largest_json)
    offer = await call.choose(body.get("model"), CONVERSE)
    # Reading may decode hundreds of megabytes.
    request, embeddings = await asyncio.to_thread(read_request, call, offer, body)
    writing = ChatAnswer(request, call.service.kept_answers)
    call.begin()

    def work(stop: threading.Event) -> Generator[ConversationEvent, None, None]:
        return stopped_at(request.extensions.get(STOP, ()), conversation(call, offer, request, embeddings, stop))

    if request.stream:
        return await streamed(call, _parts(call, writing, events_of(work)), BEFORE_STREAMING)
    events = await all_events(call.request, work)
    answer = events[-1] if events else None
    if not isinstance(answer, Answer):
        raise WorkbenchError("the conversation ended without an answer")
    call.seconds = answer.audio_seconds
    pieces = [event for event in events if isinstance(event, Piece)]
    return JSONResponse(await asyncio.to_thread(writing.whole, answer, pieces))


def read_request(call: Call, offer: RuntimeOffer, body: Mapping[str, Any]) -> tuple[ChatRequest, list[Embedding]]:
    """Returns the request and the embeddings in its messages; raises `BadInput` for a field that cannot be followed."""
    family = FAMILIES[offer.card.family]
    options_class: Any = family.chat_options_class or family.options_class
    specs = [spec for spec in option_specs(options_class) if not spec.runtimes or offer.cell.runtime in spec.runtimes]
    names = [spec.name for spec in specs if spec.name not in UNSHOWN]
    writes = family.input == PROMPT
    text_body, embeddings = _without_embeddings(body) if writes else (dict(body), [])
    text_body["model"] = offer.cell.value
    request = read_chat_request(
        text_body,
        [offer.cell.value],
        names,
        call.service.kept_answers,
        _text_fields() if writes else None,
        ("text", PART) if writes else ("text", "input_audio"),
    )
    options = dict(request.options)
    for name, option in (("min_tokens", "min_new_tokens"),):
        if request.extensions.get(name):
            options[option] = request.extensions[name]
    if request.extensions.get("logprobs"):
        options["alternatives"] = REQUESTED_ALTERNATIVES
    if "chat_template_kwargs" in request.extensions:
        options["thinking"] = request.extensions["chat_template_kwargs"]
    for spec in specs:
        if spec.file and options.get(spec.name) is not None:
            raise Refusal(f"{spec.name} is a file of the server, which a request cannot name", spec.name)
    check_places(call.service.pool.registry, options)
    build_options(options_class, options, offer.card.id)
    return replace(request, model=str(body["model"]), options=options), embeddings


def _text_fields() -> dict[str, FollowedField]:
    """Returns the fields that a language model follows and other models do not."""
    return {
        STOP: lambda value, name: read_stops(value),
        "logprobs": read_chat_logprobs,
        "top_logprobs": read_chat_logprobs,
        # Of vLLM's servers, which this project's own client sends.
        "min_tokens": _whole_number,
        "stop_token_ids": _one_of([]),
        "min_p": _one_of(0),
        "return_tokens_as_token_ids": _one_of(False),
        "chat_template_kwargs": _thinking,
    }


def _whole_number(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refusal(f"{name} is {value!r:.80}; expected a whole number of at least 0", name, "invalid_type")
    return value


def _one_of(harmless: Any) -> Callable[[Any, str], Any]:
    def read(value: Any, name: str) -> Any:
        if value != harmless:
            raise Refusal(f"{name} is {value!r:.80}, which this server does not follow; leave it out", name)
        return value

    return read


def _thinking(value: Any, name: str) -> bool:
    on = value.get("enable_thinking") if isinstance(value, Mapping) and len(value) == 1 else None
    if not isinstance(on, bool):
        raise Refusal(f'{name} is {value!r:.80}; expected {{"enable_thinking": true}} or false', name)
    return on


def _without_embeddings(body: Mapping[str, Any]) -> tuple[dict[str, Any], list[Embedding]]:
    """Returns the request with a placeholder in place of each embedding part, and the embeddings in their order.

    If the texts of a message hold placeholders themselves, the parts add none.
    """
    found: list[Embedding] = []
    messages = body.get("messages")
    if not isinstance(messages, list):
        return dict(body), found
    text_parts: list[Any] = []
    for number, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, list) or not any(is_embedding_part(part) for part in content):
            text_parts.append(message)
            continue
        texts = list[str]()
        has_own_placeholders = _holds_placeholders(content, f"messages[{number}]")
        for place, part in enumerate(content):
            where = f"messages[{number}].content[{place}]"
            if is_embedding_part(part):
                data, encoding, tensor = read_part(part)
                found.append(read_embedding(data, encoding=encoding, tensor=tensor, name=where))
                texts.append("" if has_own_placeholders else PLACEHOLDER)
            elif (text := _text_of(part)) is not None:
                texts.append(text)
            else:
                raise Refusal(f"{where} is not a text; expected parts of type text and {PART} beside an {PART}", where)
        text_parts.append({**message, "content": "".join(texts)})
    return {**body, "messages": text_parts}, found


def _holds_placeholders(parts: Sequence[Any], where: str) -> bool:
    """Returns whether the texts of a message say themselves where its embeddings go, as on vLLM's server; raises
    `Refusal` if they do so for another number of embeddings.
    """
    count = sum(map(is_embedding_part, parts))
    placeholders = sum((_text_of(part) or "").count(PLACEHOLDER) for part in parts)
    if placeholders not in (0, count):
        place = f"the text of {where}"
        raise Refusal(f"{mismatch(place, PLACEHOLDER, placeholders, count)}, or none in the text", f"{where}.content")
    return placeholders > 0


def _text_of(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
    return text if isinstance(text, str) else None


def conversation(
    call: Call,
    offer: RuntimeOffer,
    request: ChatRequest,
    embeddings: list[Embedding],
    stop: threading.Event,
    on_activity: OnActivity = ignore_activity,
) -> Generator[ConversationEvent, None, None]:
    """Yields the events of a chat; calls `on_activity` with the activity while the model loads or waits."""
    family = FAMILIES[offer.card.family]
    messages: list[Any] = list(request.messages)
    if not embeddings:
        messages = checked_messages(messages, family.input != PROMPT, offer.card.id)  # before a model is loaded
    session = call.service.open(offer, stop, on_activity)
    options = dict(request.options)
    if embeddings:
        options.pop("modalities", None)
        generation_options = build_options(family.options_class, options, offer.card.id)
        prompt: Any = messages
        events = text_answer(session.generate_stream(prompt, embeddings=embeddings, **options), generation_options)
    else:
        events = session.converse_stream(messages, **options)
    with call.service.waiting(stop, on_activity), contextlib.closing(events):
        for event in events:
            if stop.is_set():
                raise Cancelled("the client went away")
            yield event


def stopped_at(
    stops: tuple[str, ...], events: Generator[ConversationEvent, None, None]
) -> Generator[ConversationEvent, None, None]:
    """Yields the events of a chat up to the first of several stop texts."""
    if not stops:
        yield from events
        return
    stopping, ids, prompt_rows = Stopping(stops), list[int](), 0
    first: AnswerStart | None = None
    with contextlib.closing(events):
        for event in events:
            if isinstance(event, AnswerStart):
                first, prompt_rows = event, event.prompt_rows
                yield event
            elif isinstance(event, Piece):
                ids += event.tokens
                prompt_rows = event.prompt_tokens or prompt_rows
                yield replace(event, text=stopping.feed(event.text))
                if stopping.ended:
                    break
            elif isinstance(event, Answer):
                if remainder := stopping.feed("", last=True):
                    yield Piece(remainder, ())
                yield replace(event, text=stopping.text)
                return
            else:
                yield event
    yield Answer(
        model="",
        runtime="",
        text=stopping.text,
        audio=None,
        sample_rate=None,
        finish=STOP,
        token_ids=tuple(ids),
        streams=None,
        prompt_rows=prompt_rows,
        load_seconds=0.0,
        compute_seconds=0.0,
        settings=first.settings if first else {},
    )


async def _parts(
    call: Call, writing: ChatAnswer, chat_events: AsyncGenerator[ConversationEvent, None]
) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(chat_events):
        async for event in chat_events:
            if isinstance(event, AudioPiece):
                call.seconds += len(event.samples) / event.sample_rate
            yield events(writing.chunks(event)).encode()
    yield DONE.encode()
