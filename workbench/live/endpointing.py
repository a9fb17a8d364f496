"""Finds the segments of speech in streaming audio (endpointing).

A segment begins a little before its speech, and ends a little after it, so two of them may share silence. Where
somebody speaks for longer than a recogniser takes at once, the segment is cut at a quiet place, and the next one goes
on there. Only the present segment stays in memory, so the length of the sound does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.silero_network import CHUNK
from workbench.audio.silero_stream import SileroStream
from workbench.audio.spans import Span, cap_spans, frame_levels

BEGINS, GOES_ON = 0.5, 0.35  # probabilities of speech, as in `workbench.audio.silero`
BEFORE = 0.4  # seconds of a segment before its speech
TAIL_CHUNKS = 8  # of a segment after its speech: 0.256 s
MIN_SPEECH_CHUNKS = 3  # chunks of speech that begin a segment: 96 ms
FORGET_CHUNKS = 250  # of silence, after which the network begins anew: 8 s
OVERLONG = 2.0  # seconds beyond the longest segment that make it worth a cut


@dataclass(frozen=True)
class EndpointingLimits:
    """The conditions that end a segment."""

    end_silence: float = 0.4  # seconds without speech
    longest: float = 30.0  # seconds


@dataclass(frozen=True, eq=False)
class SpeechSegment:
    """A segment of speech, or the beginning of one."""

    number: int
    start: float  # seconds from the start of the sound
    samples: np.ndarray  # float32 at 16 kHz
    speech_end: float  # where its speech ended, as far as is known

    @property
    def end(self) -> float:
        """Seconds from the start of the sound."""
        return self.start + len(self.samples) / SAMPLE_RATE


DEFAULT_LIMITS = EndpointingLimits()


class Endpointer:
    """Takes sound piece by piece; `present` is the segment that is being spoken."""

    def __init__(self, limits: EndpointingLimits = DEFAULT_LIMITS):
        self._limits = limits
        self._network = SileroStream()
        self._rest = np.empty(0, np.float32)  # less than a chunk
        self._chunks: list[np.ndarray] = []  # of the segment; in a pause, the last ones before the next segment
        self._count = 0  # samples in them
        self._first = 0  # samples before the kept ones
        self._ended_at = 0  # samples before the end of the last segment and the pause that ended it
        self._speaking = False
        self._speech_chunks = 0  # chunks of speech in a row
        self._silent_chunks = 0  # chunks since the last speech
        self._number = 0

    @property
    def seconds(self) -> float:
        """The seconds of sound so far."""
        return self._first / SAMPLE_RATE + self.kept_seconds

    @property
    def kept_seconds(self) -> float:
        """The seconds of sound in memory."""
        return (self._count + len(self._rest)) / SAMPLE_RATE

    @property
    def pending_seconds(self) -> float:
        """The seconds of sound since the last segment ended, or since `finish` or `discard`."""
        return self.seconds - self._ended_at / SAMPLE_RATE

    def feed(self, samples: np.ndarray) -> list[SpeechSegment]:
        """Takes the next samples, float32 [n] at 16 kHz, and returns the segments that have ended."""
        sound = np.concatenate([self._rest, samples])
        complete = len(sound) // CHUNK * CHUNK
        self._rest = sound[complete:].copy()
        ended = []
        for chunk in sound[:complete].reshape(-1, CHUNK):
            ended += self._process_chunk(chunk.copy())
        return ended

    def present(self) -> SpeechSegment | None:
        """Returns the present segment so far, without the silence after it; None in a pause."""
        return self._segment() if self._speaking else None

    def finish(self) -> list[SpeechSegment]:
        """Ends the present segment, and returns it if there is one."""
        ended = []
        if self._speaking:
            self._take_rest()
            ended = [self._segment()]
        self._end(keep=0)
        return ended

    def discard(self) -> int | None:
        """Forgets the present segment and the sound before it; returns the number of the segment if there is one."""
        number = self._number if self._speaking else None
        self._take_rest()
        self._end(keep=0)
        self._silent_chunks = 0
        self._network.forget()
        return number

    def _take_rest(self) -> None:
        """Takes the samples that do not fill a chunk, without asking whether they are speech."""
        self._chunks.append(self._rest)
        self._count += len(self._rest)
        self._rest = np.empty(0, np.float32)

    def _process_chunk(self, chunk: np.ndarray) -> list[SpeechSegment]:
        probability = self._network.probability(chunk)
        self._chunks.append(chunk)
        self._count += len(chunk)
        is_speech = probability >= (GOES_ON if self._speaking else BEGINS)
        self._speech_chunks = self._speech_chunks + 1 if is_speech else 0
        self._silent_chunks = 0 if is_speech else self._silent_chunks + 1
        if not self._speaking:
            if self._speech_chunks >= MIN_SPEECH_CHUNKS:
                self._speaking = True
                self._number += 1
            else:
                self._drop(round(BEFORE * SAMPLE_RATE) + MIN_SPEECH_CHUNKS * CHUNK)
                if self._silent_chunks % FORGET_CHUNKS == FORGET_CHUNKS - 1:
                    self._network.forget()
            return []
        if self._silent_chunks * CHUNK >= self._limits.end_silence * SAMPLE_RATE:
            found = self._segment()
            # The silence between two segments belongs to both: a recogniser wants some of it before the first word.
            self._end(keep=min(self._silent_chunks * CHUNK, round(BEFORE * SAMPLE_RATE)))
            return [found]
        if self._count >= (self._limits.longest + OVERLONG) * SAMPLE_RATE:
            return [self._cut()]
        return []

    def _segment(self) -> SpeechSegment:
        samples = np.concatenate(self._chunks)
        silence = self._silent_chunks * CHUNK
        tail = TAIL_CHUNKS * CHUNK
        if silence > tail:
            samples = samples[: len(samples) - silence + tail]
            silence = tail
        start = self._first / SAMPLE_RATE
        return SpeechSegment(self._number, start, samples, start + (len(samples) - silence) / SAMPLE_RATE)

    def _cut(self) -> SpeechSegment:
        """Ends the present segment at a quiet place; the rest begins the next segment."""
        samples = np.concatenate(self._chunks)
        span = Span(0.0, len(samples) / SAMPLE_RATE)
        [first, *_] = cap_spans([span], self._limits.longest, frame_levels(samples))
        place = first.slice.stop
        found = SpeechSegment(
            self._number, self._first / SAMPLE_RATE, samples[:place], (self._first + place) / SAMPLE_RATE
        )
        self._first += place
        self._ended_at = self._first
        self._chunks, self._count = [samples[place:].copy()], len(samples) - place
        self._number += 1
        return found

    def _end(self, keep: int) -> None:
        self._speaking = False
        self._speech_chunks = 0
        self._ended_at = self._first + self._count
        self._drop(keep)

    def _drop(self, keep: int) -> None:
        """Drops whole chunks from the front, so that at least the last `keep` samples stay."""
        while self._chunks and self._count - len(self._chunks[0]) >= keep:
            dropped = len(self._chunks.pop(0))
            self._first += dropped
            self._count -= dropped
