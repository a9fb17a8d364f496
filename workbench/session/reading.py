"""Reads a transcript from the plain values that `Transcript.to_dict` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from workbench.core.errors import BadInput
from workbench.session.values import Doubt, Segment, SpokenHypothesis, Token, Transcript

Value = TypeVar("Value", Token, Segment, SpokenHypothesis, Doubt, Transcript)


def read_transcript(found: Mapping[str, Any]) -> Transcript:
    """Returns the transcript that `Transcript.to_dict` wrote; ignores unknown fields.

    Times are in seconds, rounded to milliseconds as written. Raises `BadInput` for values that are not a transcript.
    """
    try:
        segments = tuple(_made(Segment, each, tokens=_tokens(each.get("tokens"))) for each in found["segments"])
        hypotheses = tuple(
            _made(
                SpokenHypothesis,
                each,
                tokens=_tokens(each["tokens"]),
                words=None if each["words"] is None else _tokens(each["words"]),
            )
            for each in found.get("hypotheses", ())
        )
        return _made(
            Transcript,
            found,
            segments=segments,
            hypotheses=hypotheses,
            tokens=tuple(found["tokens"]),
            notes=tuple(found.get("notes", ())),
            doubt=_made(Doubt, found["doubt"]) if found.get("doubt") else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"this is not a transcript as JSON: {error!r:.120}") from error


def _tokens(listed: Any) -> tuple[Token, ...]:
    return tuple(_made(Token, each) for each in listed or ())


def _made(kind: type[Value], found: Mapping[str, Any], **replaced: Any) -> Value:
    known = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in found.items() if name in known} | replaced)
