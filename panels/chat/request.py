"""Reads the request of the page: one turn of a conversation, for one or several models or settings.

The page keeps the conversation and sends all of it with every turn. This file checks its form; the session checks the
content of the messages. It loads no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from panels.chat.catalogue import chat_options
from panels.running.choices import RuntimeOffer, chosen_offers, offers, vad_choices
from panels.widgets.option_inputs import label_of
from workbench.core.errors import BadInput
from workbench.core.options import OptionSpec, build_options
from workbench.families import FAMILIES
from workbench.families.family import CONVERSE
from workbench.registry.registry import Registry
from workbench.speech.replay import Recorded, Sound

MAX_COLUMNS = 3
MAX_MESSAGES = 1000


@dataclass(frozen=True)
class Column:
    """One answer that the page asks for."""

    offer: RuntimeOffer
    messages: tuple[Mapping[str, Any], ...]  # as in `workbench.session.messages`
    options: Mapping[str, Any]  # only those that the user set
    recorded: Recorded | None = None  # an earlier answer to compare with


def read_request(registry: Registry, content: Mapping[str, Any], sounds: Sequence[Sound]) -> tuple[Column, ...]:
    """Returns the answers that the page asks for; raises `BadInput` for a malformed request."""
    columns = content.get("columns")
    if not isinstance(columns, list) or not columns or not all(isinstance(each, dict) for each in columns):
        raise BadInput("the page asked for no answer; reload it")
    if len(columns) > MAX_COLUMNS:
        raise BadInput(f"{len(columns)} answers side by side are requested; expected at most {MAX_COLUMNS}")
    known = offers(registry, CONVERSE)
    return tuple(_column(registry, each, known, sounds) for each in columns)


def _column(
    registry: Registry, fields: Mapping[str, Any], known: Sequence[RuntimeOffer], sounds: Sequence[Sound]
) -> Column:
    value = fields.get("model")
    if not isinstance(value, str) or not value:
        raise BadInput("no model is chosen; choose one that answers conversations")
    [offer] = chosen_offers([value], known)
    return Column(
        offer,
        read_messages(fields.get("messages"), sounds),
        read_options(registry, offer, fields.get("options") or {}),
        Recorded.read(fields["recorded"]) if isinstance(fields.get("recorded"), dict) else None,
    )


def read_messages(messages: Any, sounds: Sequence[Sound]) -> tuple[Mapping[str, Any], ...]:
    """Returns messages of the page as a session takes them: `{"type": "audio", "sound": number}` becomes samples.

    It refuses paths, because a page must not open files of the server.
    """
    if not isinstance(messages, list) or not messages or len(messages) > MAX_MESSAGES:
        raise BadInput(f"the conversation is empty or longer than {MAX_MESSAGES} messages; write or record something")
    return tuple(_message(each, sounds) for each in messages)


def _message(message: Any, sounds: Sequence[Sound]) -> Mapping[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadInput("a message of the conversation has no role; reload the page")
    content = message.get("content")
    if isinstance(content, str):
        return {"role": message["role"], "content": content}
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadInput("a message of the conversation has no content; reload the page")
    return {"role": message["role"], "content": [_part(part, sounds) for part in content]}


def _part(part: Mapping[str, Any], sounds: Sequence[Sound]) -> Mapping[str, Any]:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if part.get("type") == "input_audio":
        return {"type": "input_audio", "input_audio": part.get("input_audio")}
    if part.get("type") == "audio" and isinstance(part.get("streams"), list):
        return {"type": "audio", "streams": read_streams(part["streams"])}
    number = part.get("sound")
    if part.get("type") == "audio" and isinstance(number, int) and 0 <= number < len(sounds):
        return {"type": "audio", "audio": (sounds[number].samples, sounds[number].rate)}
    raise BadInput(
        "a part of a message is neither a text, an input_audio nor an uploaded recording; a path on the server is not "
        "accepted here"
    )


def read_streams(rows: Any) -> np.ndarray:
    """Returns codec tokens [rows, streams] that the page sent; raises `BadInput` for anything else."""
    try:
        streams = np.asarray(rows, dtype=np.int64)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInput("the codec tokens of an answer are not whole numbers in rows of one length") from error
    if streams.ndim != 2 or not streams.size:
        raise BadInput(f"the codec tokens of an answer have the shape {streams.shape}; expected rows x streams")
    return streams


def read_options(registry: Registry, offer: RuntimeOffer, fields: Any) -> dict[str, Any]:
    """Returns the options of the page by name, checked; an empty text stands for the default."""
    specs = {spec.name: spec for spec in chat_options(offer)}
    if not isinstance(fields, Mapping):
        raise BadInput("the options of a model are not a JSON object")
    unknown = [name for name in fields if name not in specs]
    if unknown:
        raise BadInput(f"{offer.title} has no option {unknown[0]!r:.80}; it has {', '.join(specs)}")
    options = {name: _value(specs[name], value) for name, value in fields.items() if value not in (None, "")}
    if options.get("vad") not in (None, *vad_choices(registry)):
        raise BadInput(f"option vad is {options['vad']!r:.80}; expected one of {', '.join(vad_choices(registry))}")
    options_class = FAMILIES[offer.card.family].chat_options_class
    if options_class is not None:
        build_options(options_class, options, offer.card.id)
    return options


def _value(spec: OptionSpec, value: Any) -> Any:
    if spec.kind in (int, float) and isinstance(value, str):
        try:
            return spec.kind(value.strip())
        except ValueError:
            expected = "a whole number" if spec.kind is int else "a number"
            raise BadInput(f"{label_of(spec.name)} is {value!r:.80}; expected {expected}, or nothing") from None
    if spec.kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if spec.kind is tuple and isinstance(value, str):
        return tuple(line.strip() for line in value.splitlines() if line.strip())
    return value
