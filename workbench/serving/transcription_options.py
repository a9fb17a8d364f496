"""Reads the options of a transcription from the requests of the routes, the websockets and MCP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.core.options import option_specs
from workbench.openai_api.transcription_request import TranscriptionRequest, read_transcription_request
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.serving.offers import options_for


def checked_request(
    registry: Registry, card: Card, fields: Sequence[tuple[str, str]], options: Mapping[str, Any] | None = None
) -> TranscriptionRequest:
    """Returns the request for a model, with its checked options.

    Args:
        fields: those of OpenAI's form, each a name and a text.
        options: further ones of the model by name; those that it does not have are left out.

    Raises `Refusal` for a field that cannot be followed, and `BadInput` for the value of an option.
    """
    request = read_transcription_request(fields, option_specs(registry.options_class(card.id)), card.languages)
    return replace(request, options=options_for(registry, card.id, {**request.options, **(options or {})}))
