"""Adds a content part with an embedding to vLLM's chats (see `embedding_part`).

vLLM has no interface for new content parts. So this file wraps two private functions of its chat parser, only in
processes whose model takes embeddings. If a version of vLLM has other functions, nothing is changed, the log says so,
and the server refuses such parts like any unknown part.

An embedding goes to the position of its part in the message; nothing is added before or after it. If the message's
texts contain placeholders, the message's embeddings replace them in order, and both must be equal in number.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vllm.logger import init_logger

from workbench.core.errors import BadInput
from workbench.embeddings import Embedding, read_embedding
from workbench.embeddings.prompt import mismatch
from workbench.runtimes.vllm.embedding_parts.content_part import FORM, PART, is_embedding_part, read_part
from workbench.runtimes.vllm.models.embedding import MODALITY, embedding_label, placeholder_of
from workbench.runtimes.vllm.models.errors import BadRequest

ARCHITECTURE = "SpeechWorkbenchEmbeddingLM"  # the model class whose chats may have embeddings
MESSAGE, ITEMS = "_parse_chat_message_content", "_resolve_items"  # the wrapped functions in vLLM's module
PARAMETERS = {MESSAGE: ("message", "mm_tracker"), ITEMS: ("items_by_modality", "mm_processor", "modality_order")}
WRAPPED = "takes_embeddings"  # the mark of a wrapped function
PART_ERRORS = ("missing", "dict_type")  # pydantic's names of the errors that contain a whole part
TEXTS = ("text", "input_text", "output_text")  # the types of parts that are text

logger = init_logger("vllm.speech_workbench")


def teach_embeddings() -> None:
    """Makes this process's chats accept embeddings. May be called again."""
    from vllm.renderers import chat_utils

    if hasattr(getattr(chat_utils, MESSAGE, None), WRAPPED):
        return
    if changed_names := [
        name for name, first in PARAMETERS.items() if _parameters(chat_utils, name)[: len(first)] != first
    ]:
        logger.warning_once(
            "The chat parser of this version of vLLM has no %s of the form that is known here: content parts of type "
            "%s are refused. Expected vLLM 0.32.",
            " and ".join(changed_names),
            PART,
        )
        return
    for name, wrap in ((MESSAGE, _with_parts), (ITEMS, _with_items)):
        wrapped = wrap(getattr(chat_utils, name))
        setattr(wrapped, WRAPPED, True)
        setattr(chat_utils, name, wrapped)


def _parameters(module: Any, name: str) -> tuple[str, ...]:
    function = getattr(module, name, None)
    return tuple(inspect.signature(function).parameters) if callable(function) else ()


def _with_parts(parse: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(parse)
    def parse_with_embeddings(message: Any, mm_tracker: Any, *arguments: Any, **options: Any) -> Any:
        if ARCHITECTURE in (getattr(mm_tracker.model_config.hf_config, "architectures", None) or ()):
            content = message.get("content")
            if isinstance(content, str):
                place_embeddings([content], mm_tracker)  # refuses placeholders without an embedding
            elif content is not None:
                message = {**message, "content": place_embeddings(list(_each(content)), mm_tracker)}
        return parse(message, mm_tracker, *arguments, **options)

    return parse_with_embeddings


def _each(parts: Iterable[Any]) -> Iterator[Any]:
    """Yields the parts of a message as the request has them.

    If all parts of a message have types unknown to OpenAI, vLLM passes an iterator that raises an error for each of
    them and then continues. The error contains the part.
    """
    from pydantic import ValidationError

    iterator = iter(parts)
    while True:
        try:
            yield next(iterator)
        except StopIteration:
            return
        except ValidationError as error:
            rejected = [each["input"] for each in error.errors(include_url=False) if each["type"] in PART_ERRORS]
            if not rejected:
                raise
            # An error may also name each key of a single part that was sent where a list of parts belongs.
            if not isinstance(rejected[0], Mapping):
                raise BadRequest(
                    f"the content of a message has {rejected[0]!r:.80} where a part belongs; expected one text, or a "
                    f"list of parts like {FORM}"
                ) from error
            yield rejected[0]


def _with_items(resolve: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(resolve)
    def resolve_with_embeddings(
        items_by_modality: Mapping[str, list[Any]], mm_processor: Any, modality_order: Any
    ) -> Any:
        other_items = {name: items for name, items in items_by_modality.items() if name != MODALITY}
        data, uuids = resolve(other_items, mm_processor, modality_order)
        if embeddings := items_by_modality.get(MODALITY):
            data[MODALITY] = [embedding for embedding, _ in embeddings]
            uuids[MODALITY] = [None] * len(embeddings)
        return data, uuids

    return resolve_with_embeddings


def place_embeddings(parts: Sequence[Any], tracker: Any) -> list[Any]:
    """Replaces the embeddings among a message's parts by placeholders, and gives the embeddings to vLLM's tracker.

    Raises `BadRequest` for a malformed part, and for texts whose number of placeholders is neither zero nor the
    message's number of embeddings.
    """
    placeholder = placeholder_of(tracker.model_config.hf_config)
    count = sum(map(is_embedding_part, parts))
    placeholders = sum((_text(part) or "").count(placeholder) for part in parts)
    if placeholders not in (0, count):
        alternative_note = (
            ", or none in the text, which puts each embedding at the position of its part" if count else ""
        )
        raise BadRequest(mismatch("the text of a message", placeholder, placeholders, count) + alternative_note)
    for number, part in enumerate(filter(is_embedding_part, parts), 1):
        tracker.add(MODALITY, _item(part, tracker, embedding_label(number, count)))
    if placeholders:
        return [part for part in parts if not is_embedding_part(part)]
    new_parts: list[Any] = []
    joins = False  # whether the next text is appended to the previous one, which ends with a placeholder
    for part in parts:
        text = placeholder if is_embedding_part(part) else _text(part)
        if (
            text is not None
            and new_parts
            and (joins or is_embedding_part(part))
            and (previous := _text(new_parts[-1])) is not None
        ):
            new_parts[-1] = {"type": "text", "text": previous + text}
        else:
            new_parts.append({"type": "text", "text": text} if is_embedding_part(part) else part)
        joins = is_embedding_part(part)
    return new_parts


def _text(part: Any) -> str | None:
    """Returns the text of a part that is only text, else None."""
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") in TEXTS else None
    return text if isinstance(text, str) else None


def _item(part: Mapping[str, Any], tracker: Any, name: str) -> Any:
    """Returns what a tracker takes for a part: (the embedding, None as its cache name), or a function that reads it
    later.
    """
    try:
        data, encoding, tensor = read_part(part, placeholder_of(tracker.model_config.hf_config))
    except BadInput as error:
        raise BadRequest(str(error)) from error

    def read() -> tuple[Embedding, None]:
        try:
            return read_embedding(data, encoding=encoding, tensor=tensor, name=name), None
        except BadInput as error:
            raise BadRequest(str(error)) from error

    async def read_in_thread() -> tuple[Embedding, None]:
        return await asyncio.to_thread(read)

    return read_in_thread if inspect.iscoroutinefunction(tracker.resolve_items) else read()
