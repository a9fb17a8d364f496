"""Reads a transcript from the plain values that `Transcript.to_dict` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from workbench.core.errors import BadInput
from workbench.session.values import Doubt, Segment, SpokenHypothesis, Token, Transcript

Value = TypeVar("Value", Token, Segment, SpokenHypothesis, Doubt, Transcript)


def read_transcript(values: Mapping[str, Any]) -> Transcript:
    """Returns the transcript that `Transcript.to_dict` wrote; ignores unknown fields.

    Times are in seconds, rounded to milliseconds as written. Raises `BadInput` for values that are not a transcript.
    """
    try:
        segments = tuple(_build(Segment, each, tokens=_tokens(each.get("tokens"))) for each in values["segments"])
        hypotheses = tuple(
            _build(
                SpokenHypothesis,
                each,
                tokens=_tokens(each["tokens"]),
                words=None if each["words"] is None else _tokens(each["words"]),
            )
            for each in values.get("hypotheses", ())
        )
        return _build(
            Transcript,
            values,
            segments=segments,
            hypotheses=hypotheses,
            tokens=tuple(values["tokens"]),
            notes=tuple(values.get("notes", ())),
            doubt=_build(Doubt, values["doubt"]) if values.get("doubt") else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"this is not a transcript as JSON: {error!r:.120}") from error


def _tokens(items: Any) -> tuple[Token, ...]:
    return tuple(_build(Token, each) for each in items or ())


def _build(kind: type[Value], values: Mapping[str, Any], **overrides: Any) -> Value:
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names} | overrides)
