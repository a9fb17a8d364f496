"""Drives a recogniser over a whole recording: voice activity, segments, absolute times, progress.

Every runtime's speech session is this class around that runtime's recogniser, which knows one stretch of speech at a
time. This file knows no network.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from workbench.audio.read import Recording, read
from workbench.audio.spans import Span
from workbench.errors import BadInput
from workbench.memory import peak_resident_bytes
from workbench.options import ListeningOptions, build_options
from workbench.session import (
    AudioSource,
    Event,
    Progress,
    Segment,
    StageFilter,
    Token,
    Trace,
    Transcript,
    last_transcript,
)
from workbench.versions import versions
from workbench.voice_activity import speech_spans
from workbench.writing import is_hangul, needs_space

PAUSE_SECONDS = 1.0  # a longer silence between two tokens begins a new segment
SENTENCE_ENDS = ("。", "！", "？", ".", "!", "?")
SENTENCE_SECONDS = 4.0  # a segment this long may end at the end of a sentence


@dataclass(frozen=True)
class Heard:
    """What a recogniser heard in one stretch; token times count from the stretch's start."""

    text: str
    language: str | None
    tags: Mapping[str, str]
    tokens: tuple[Token, ...]
    ids: tuple[int, ...]


class Recogniser(Protocol):
    """A loaded model, one stretch of speech at a time."""

    dtype: str

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        ...

    def recognise(self, samples: np.ndarray, options: Any) -> Heard:
        """What is said in the samples."""
        ...

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of some of the visible tokens."""
        ...

    def trace(self, samples: np.ndarray, options: Any, wanted: StageFilter) -> dict[str, np.ndarray]:
        """The stages of one pass over the samples."""
        ...


class SpeechSession:
    """A recogniser as a session (see `workbench.session.Session`)."""

    def __init__(self, model: str, runtime: str, recogniser: Recogniser):
        self.model = model
        self.runtime = runtime
        self.load_seconds = 0.0  # set by whoever opens the session
        self._recogniser: Recogniser | None = recogniser

    @property
    def recogniser(self) -> Recogniser:
        """The loaded model; raises `BadInput` after `close`."""
        if self._recogniser is None:
            raise BadInput(f"the session of {self.model} is closed; open it again")
        return self._recogniser

    def stream(self, audio: AudioSource, **options: Any) -> Generator[Event, None, None]:
        """Yields `Progress` and each finished `Segment`, and last the `Transcript`."""
        recogniser = self.recogniser
        chosen = build_options(recogniser.options_class, options, self.model)
        begun = time.perf_counter()
        recording = read(audio)
        yield Progress(0.0, recording.seconds, "listening for speech")
        found = speech_spans(recording.samples, chosen)
        heard: list[Heard] = []
        segments: list[Segment] = []
        for span in found.spans:
            yield Progress(span.start, recording.seconds, "transcribing")
            first, end = (round(edge * recording.sample_rate) for edge in (span.start, span.end))
            part = recogniser.recognise(recording.samples[first:end], chosen)
            heard.append(part)
            for segment in _segments(part, span, recogniser.text_of if chosen.timestamps else None):
                segments.append(segment)
                yield segment
        yield Progress(recording.seconds, recording.seconds, "done")
        yield self._transcript(recording, heard, segments, found.notes, time.perf_counter() - begun)

    def transcribe(self, audio: AudioSource, **options: Any) -> Transcript:
        """The transcript of a recording."""
        return last_transcript(self.stream(audio, **options))

    def trace(self, audio: AudioSource, stages: str = "*", **options: Any) -> Trace:
        """The stages that match the glob, of one pass over the whole recording, without voice activity detection."""
        recogniser = self.recogniser
        chosen = build_options(recogniser.options_class, options, self.model)
        wanted = StageFilter(stages)
        recording = read(audio)
        found = recogniser.trace(recording.samples, chosen, wanted)
        if not found:
            raise BadInput(f"no stage of {self.model} on {self.runtime} matches {stages!r}; see the stages with *")
        meta = {
            "model": self.model,
            "runtime": self.runtime,
            "dtype": recogniser.dtype,
            "options": dict(options),
            "input_digest": recording.digest,
            "audio_seconds": recording.seconds,
            "versions": versions(),
        }
        return Trace(found, meta)

    def close(self) -> None:
        """Drops the model."""
        self._recogniser = None

    def _transcript(
        self, recording: Recording, heard: list[Heard], segments: list[Segment], notes: tuple[str, ...], seconds: float
    ) -> Transcript:
        tags = {kind: _majority(part.tags.get(kind) for part in heard) for part in heard for kind in part.tags}
        return Transcript(
            model=self.model,
            runtime=self.runtime,
            text=join_texts([part.text for part in heard]),
            language=_majority(part.language for part in heard),
            segments=tuple(segments),
            tokens=tuple(number for part in heard for number in part.ids),
            audio_seconds=recording.seconds,
            load_seconds=self.load_seconds,
            compute_seconds=seconds,
            memory_bytes=peak_resident_bytes(),
            tags={kind: name for kind, name in tags.items() if name},
            notes=recording.notes + notes,
        )


def _majority(names: Iterable[str | None]) -> str | None:
    counted = Counter(name for name in names if name)
    return counted.most_common(1)[0][0] if counted else None


def join_texts(texts: Sequence[str]) -> str:
    """Texts of consecutive stretches as one, with a space where the script has spaces between words."""
    joined = ""
    for text in texts:
        korean = bool(joined and text) and is_hangul(joined[-1]) and is_hangul(text[0])
        joined += f" {text}" if korean or needs_space(joined, text) else text
    return joined


def _segments(heard: Heard, span: Span, text_of: Callable[[Sequence[int]], str] | None) -> list[Segment]:
    """What was heard in the span as segments; cut at pauses and after sentences where the tokens have times."""
    tokens = tuple(_absolute(token, span) for token in heard.tokens)
    if not heard.text and not tokens:
        return []
    if text_of is None or any(token.start is None for token in tokens):
        return [
            Segment(
                span.start, span.end, heard.text, tuple(replace(t, start=None, end=None) for t in tokens), heard.tags
            )
        ]
    groups = _groups(tokens)
    if len(groups) < 2:
        return [Segment(span.start, span.end, heard.text, tokens, heard.tags)]
    inner = [(a[-1].end + b[0].start) / 2 for a, b in pairwise(groups)]  # type: ignore[operator]
    return [
        Segment(start, end, text_of([token.id for token in group]), group, heard.tags)
        for group, (start, end) in zip(groups, pairwise([span.start, *inner, span.end]), strict=True)
    ]


def _absolute(token: Token, span: Span) -> Token:
    if token.start is None or token.end is None:
        return token
    return replace(token, start=min(span.start + token.start, span.end), end=min(span.start + token.end, span.end))


def _groups(tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Runs of tokens between which the speaker paused or ended a sentence."""
    groups: list[list[Token]] = []
    for token in tokens:
        if not groups or _begins_segment(groups[-1], token):
            groups.append([])
        groups[-1].append(token)
    return [tuple(group) for group in groups]


def _begins_segment(current: Sequence[Token], token: Token) -> bool:
    first, last = current[0], current[-1]
    assert first.start is not None and last.end is not None and token.start is not None
    ended = last.text.strip().endswith(SENTENCE_ENDS) and last.end - first.start > SENTENCE_SECONDS
    return ended or token.start - last.end > PAUSE_SECONDS
