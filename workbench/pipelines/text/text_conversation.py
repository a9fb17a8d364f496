"""Conversations with a model that reads and writes text. This file checks the messages and makes the answer."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import asdict
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.options import ConversingOptions
from workbench.session.conversation import Answer, AnswerStart, ConversationEvent
from workbench.session.messages import Message, TextPart, check_messages, where_of
from workbench.session.values import Generation, Piece


def text_messages(messages: Any, options: ConversingOptions, model: str) -> list[dict[str, str]]:
    """Returns a conversation as role and text of each message, for a chat template.

    Raises `BadInput` for a malformed conversation, and for sound in the messages or asked for in the answer.
    """
    options.check_text_alone(model)
    return [{"role": message.role, "content": message.text} for message in check_text(messages, model)]


def check_text(messages: Any, model: str) -> tuple[Message, ...]:
    """Returns the messages of a conversation; raises `BadInput` for a malformed one, and for sound in it."""
    checked_messages = check_messages(messages)
    for number, message in enumerate(checked_messages):
        for place, part in enumerate(message.parts):
            if not isinstance(part, TextPart):
                raise BadInput(
                    f"{where_of(number, place)}: it is sound, and {model} reads text only; expected a part of type text"
                )
    return checked_messages


def text_answer(
    events: Generator[Piece | Generation, None, None], options: Any
) -> Generator[ConversationEvent, None, None]:
    """Yields `AnswerStart`, the pieces of a text that answers a conversation, and last the answer."""
    with contextlib.closing(events):
        yield AnswerStart(asdict(options))
        for event in events:
            yield answer_of(event, options) if isinstance(event, Generation) else event


def answer_of(generation: Generation, options: Any) -> Answer:
    """Returns a text as an answer that was made with these options."""
    return Answer(
        model=generation.model,
        runtime=generation.runtime,
        text=generation.text,
        audio=None,
        sample_rate=None,
        finish=generation.finish,
        token_ids=generation.tokens,
        streams=None,
        prompt_rows=generation.prompt_tokens,
        load_seconds=generation.load_seconds,
        compute_seconds=generation.compute_seconds,
        first_text_seconds=generation.first_token_seconds or None,
        memory_bytes=generation.memory_bytes,
        quantization=generation.quantization,
        settings=asdict(options),
        notes=generation.notes,
    )
