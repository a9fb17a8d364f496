"""Places the recognition of one chunk in its recording, and divides it into segments at pauses and sentence ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from workbench.audio.spans import Span
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.session.values import Segment, Token

PAUSE_SECONDS = 1.0  # a longer silence between two tokens begins a new segment
SENTENCE_ENDS = ("。", "！", "？", ".", "!", "?")
SENTENCE_SECONDS = 4.0  # a segment this long may end at the end of a sentence


def segments_of(recognition: Recognition, span: Span, text_of: Callable[[Sequence[int]], str] | None) -> list[Segment]:
    """Returns the recognition as segments, cut at pauses and after sentences if the tokens have times."""
    tokens = tuple(_absolute(token, span) for token in recognition.tokens)
    if not recognition.text and not tokens:
        return []
    if text_of is None or any(token.start is None for token in tokens):
        return [
            Segment(
                span.start,
                span.end,
                recognition.text,
                tuple(replace(t, start=None, end=None) for t in tokens),
                recognition.tags,
            )
        ]
    groups = _groups(tokens)
    if len(groups) < 2:
        return [Segment(span.start, span.end, recognition.text, tokens, recognition.tags)]
    inner = [(a[-1].end + b[0].start) / 2 for a, b in pairwise(groups)]  # type: ignore[operator]
    return [
        Segment(
            start, end, _text(group) if recognition.worded else text_of([t.id for t in group]), group, recognition.tags
        )
        for group, (start, end) in zip(groups, pairwise([span.start, *inner, span.end]), strict=True)
    ]


def _text(words: Sequence[Token]) -> str:
    return "".join(word.text for word in words).strip()


def with_absolute_times(recognition: Recognition, span: Span) -> Recognition:
    """Returns the recognition with hypotheses whose times count from the start of the recording."""

    def placed(tokens: Sequence[Token]) -> tuple[Token, ...]:
        return tuple(_absolute(token, span) for token in tokens)

    hypotheses = (
        replace(each, tokens=placed(each.tokens), words=None if each.words is None else placed(each.words))
        for each in recognition.hypotheses
    )
    return replace(recognition, hypotheses=tuple(hypotheses))


def _absolute(token: Token, span: Span) -> Token:
    if token.start is None or token.end is None:
        return token
    return replace(token, start=min(span.start + token.start, span.end), end=min(span.start + token.end, span.end))


def _groups(tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Splits the tokens where the speaker paused or ended a sentence."""
    groups: list[list[Token]] = []
    for token in tokens:
        if not groups or _begins_segment(groups[-1], token):
            groups.append([])
        groups[-1].append(token)
    return [tuple(group) for group in groups]


def _begins_segment(current: Sequence[Token], token: Token) -> bool:
    first, last = current[0], current[-1]
    assert first.start is not None and last.end is not None and token.start is not None
    sentence_ended = last.text.strip().endswith(SENTENCE_ENDS) and last.end - first.start > SENTENCE_SECONDS
    return sentence_ended or token.start - last.end > PAUSE_SECONDS
