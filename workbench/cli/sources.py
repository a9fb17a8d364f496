"""Reads the model's input for commands that trace: a recording, a prompt, or the messages of a conversation."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from workbench.audio.check import check_sound
from workbench.cli.standard_input import DASH, read_prompt, recording_paths
from workbench.core.errors import BadInput
from workbench.families import FAMILIES
from workbench.registry.cards import Card
from workbench.session.values import CONVERSATION
from workbench.text.prompts import check_typed, messages_of


@contextlib.contextmanager
def source_of(parsed: argparse.Namespace, card: Card, check: bool = True) -> Iterator[Any]:
    """Yields the recording, a language model's prompt, or the messages of a conversation.

    Args:
        check: whether to check the beginning of one recording; False where the caller does that.

    Raises `BadInput` for a recording as prompt, for a file without sound, and if there is nothing.
    """
    if card.family in FAMILIES and FAMILIES[card.family].input == CONVERSATION:
        from workbench.cli.chat_messages import conversation_of

        with recording_paths(parsed.audio) as recordings:
            text = parsed.source
            is_conversation = text is not None and text != DASH and messages_of(text, typed=True) is not text
            recordings_and_text = [*recordings, *([text] if is_conversation else [])]
            if text is None and not recordings_and_text and parsed.messages is None:
                raise BadInput(f"{card.id} has nothing to answer; expected a text, a recording, --audio or --messages")
            yield conversation_of(None if is_conversation else text, recordings_and_text, None, parsed.messages)
        return
    if parsed.audio or parsed.messages:
        flag = "--audio" if parsed.audio else "--messages"
        raise BadInput(f"{flag} is for models that answer text and speech; {card.id} takes one recording or prompt")
    if parsed.source is None:
        raise BadInput(f"{card.id} has no input; expected an audio file or a prompt")
    if card.family in FAMILIES and FAMILIES[card.family].reads_text:
        if parsed.source != DASH:
            check_typed(parsed.source, card.id)
        yield read_prompt(parsed.source)
    else:
        with recording_paths([parsed.source]) as [recording]:
            if check:
                check_sound(recording)
            yield recording
