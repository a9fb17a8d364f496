"""Transcripts to export, and independent parsers of subtitle files."""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from workbench.session.values import Segment, Token, Transcript


def transcript(*segments: Segment, text: str | None = None, **changes: object) -> Transcript:
    plain = Transcript(
        model="demo/paraformer",
        runtime="pytorch",
        text=" ".join(segment.text for segment in segments) if text is None else text,
        language="en",
        segments=segments,
        tokens=(3, 1, 2),
        audio_seconds=60.0,
        load_seconds=0.5,
        compute_seconds=1.25,
        memory_bytes=1,
        tags={"emotion": "neutral"},
        notes=("a note",),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def spelt(start: float, end: float, words: list[tuple[str, float, float]], text: str | None = None) -> Segment:
    tokens = tuple(Token(number, word, first, last) for number, (word, first, last) in enumerate(words))
    return Segment(start, end, " ".join(word for word, _, _ in words) if text is None else text, tokens)


def parse_srt(content: str) -> list[tuple[float, float, list[str]]]:
    parsed = []
    for number, block in enumerate(content.removesuffix("\n").split("\n\n") if content else [], 1):
        count, times, *lines = block.split("\n")
        assert int(count) == number
        match = re.fullmatch(r"(\d\d+):(\d\d):(\d\d),(\d{3}) --> (\d\d+):(\d\d):(\d\d),(\d{3})", times)
        assert match
        assert lines
        parsed.append((*_span(match), lines))
    return parsed


def parse_vtt(content: str) -> list[tuple[float, float, list[str]]]:
    head, *blocks = content.removesuffix("\n").split("\n\n")
    assert head.startswith("WEBVTT")
    parsed = []
    for block in blocks:
        times, *lines = block.split("\n")
        match = re.fullmatch(r"(\d\d+):(\d\d):(\d\d)\.(\d{3}) --> (\d\d+):(\d\d):(\d\d)\.(\d{3})", times)
        assert match
        assert not any("-->" in line or "<" in line for line in lines)
        parsed.append((*_span(match), [html.unescape(line) for line in lines]))
    return parsed


def _span(match: re.Match[str]) -> tuple[float, float]:
    h, m, s, ms, h2, m2, s2, ms2 = map(int, match.groups())
    assert max(m, s, m2, s2) < 60
    return h * 3600 + m * 60 + s + ms / 1000, h2 * 3600 + m2 * 60 + s2 + ms2 / 1000


def columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


times = st.floats(0, 200_000, allow_nan=False)
texts = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(["a", "seven,", "extraordinarily", "今", "天，", "-->", "<b>", "&", "3.5"]), max_size=60
    ).map(" ".join),
    st.text("今天气很好，。（）a ", max_size=200),
)


@st.composite
def segment_lists(draw: st.DrawFn) -> list[Segment]:
    segments = []
    for _ in range(draw(st.integers(0, 4))):
        start, length, text = draw(times), draw(st.floats(0, 60)), draw(texts)
        edges = sorted(draw(st.lists(st.floats(start, start + length), min_size=2, max_size=10)))
        tokens = tuple(Token(0, word, *edge) for word, edge in zip(text.split(), pairwise(edges), strict=False))
        segments.append(Segment(start, start + length, text, tokens))
    return segments
