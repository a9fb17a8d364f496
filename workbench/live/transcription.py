"""Transcribes speech while somebody speaks, in two passes: partial texts of the segment so far, then the final text.

The final text of a segment is the model's transcript of exactly these samples, as if they were a file. After a short
silence, the model already transcribes the segment, although the silence is not long enough yet to end it. So the final
text comes soon after the end. A separate thread calls the model: one call at a time, final texts first.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import Cancelled
from workbench.core.visitors import in_current_context
from workbench.live.endpointing import DEFAULT_LIMITS, Endpointer, EndpointingLimits, SpeechSegment
from workbench.session.values import Segment, Transcript
from workbench.text.scripts import join_texts

EVERY = 0.4  # seconds from one partial text to the next, at least
GROWN = 0.2  # seconds of new sound that a partial text is worth
MAX_WAITING = 4  # segments that wait for the model; then `feed` waits, too


@dataclass(frozen=True)
class SpeechStarted:
    """Somebody has begun to speak."""

    number: int  # of the segment
    start: float  # seconds from the start of the sound


@dataclass(frozen=True)
class PartialText:
    """The text of a segment so far; the next partial text replaces it."""

    number: int
    start: float
    end: float
    text: str


@dataclass(frozen=True)
class FinalText:
    """A segment with its final text."""

    number: int
    start: float
    end: float
    transcript: Transcript  # with times from the start of the sound
    delay: float  # seconds from the moment when the end of its speech was heard to this text


@dataclass(frozen=True)
class Failed:
    """A segment that the model could not transcribe."""

    number: int
    start: float
    end: float
    error: Exception


LiveEvent = SpeechStarted | PartialText | FinalText | Failed
Transcribe = Callable[[np.ndarray], Transcript]
"""Returns the transcript of float32 samples [n] at 16 kHz; raises `Cancelled` if the work was stopped."""


class LiveTranscription:
    """Transcribes streaming audio and reports the texts as events.

    Args:
        transcribe: called in a thread of this object.
        on_event: called with each event, in that thread or in the thread that calls `feed`.
        limits: when a segment ends.
        busy: returns whether the model works for somebody else; then a partial text is left out.
    """

    def __init__(
        self,
        transcribe: Transcribe,
        on_event: Callable[[LiveEvent], None],
        limits: EndpointingLimits = DEFAULT_LIMITS,
        busy: Callable[[], bool] = lambda: False,
    ):
        self._transcribe, self._on_event, self._busy = transcribe, on_event, busy
        self._endpointer = Endpointer(limits)
        self._changed = threading.Condition()
        # Segments that have ended, and when; or functions to call between them.
        self._ended_segments: deque[tuple[SpeechSegment, float] | Callable[[], None]] = deque()
        self._present: SpeechSegment | None = None
        self._last_transcript: tuple[int, int, Transcript] | None = None  # segment, samples, and what was heard in them
        self._shown = (0, 0)  # segment and samples of the last partial text
        self._last_started = self._last_discarded = 0
        self._closing = False
        self._worker = threading.Thread(target=in_current_context(self._work), name="live transcription", daemon=True)
        self._worker.start()

    @property
    def seconds(self) -> float:
        """The seconds of sound that were fed."""
        return self._endpointer.seconds

    @property
    def pending_seconds(self) -> float:
        """The seconds of sound since the last segment ended."""
        return self._endpointer.pending_seconds

    def feed(self, samples: np.ndarray) -> None:
        """Takes the next samples, float32 [n] at 16 kHz; waits if the model is far behind."""
        ended = self._endpointer.feed(samples)
        present = self._endpointer.present()
        started = [each for each in (*ended, *([present] if present else [])) if each.number > self._last_started]
        for each in started:
            self._last_started = each.number
            self._on_event(SpeechStarted(each.number, each.start))
        now = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: len(self._ended_segments) < MAX_WAITING or self._closing)
            self._ended_segments += [(each, self._since(each, now)) for each in ended]
            self._present = present
            self._changed.notify_all()

    def commit(self) -> bool:
        """Ends the present segment, as a pause or the end of a recording does; returns whether there is one."""
        now = time.monotonic()
        ended = self._endpointer.finish()
        with self._changed:
            self._ended_segments += [(each, self._since(each, now)) for each in ended]
            self._present = None
            self._changed.notify_all()
        return bool(ended)

    def discard(self) -> int | None:
        """Forgets the sound since the last segment ended; returns the number of the present segment if there is one.

        The segments that have ended are still transcribed.
        """
        number = self._endpointer.discard()
        with self._changed:
            self._present = None
            self._last_discarded = number or self._last_discarded
        return number

    def call_next(self, function: Callable[[], None]) -> None:
        """Calls a function after the final texts of the segments that have ended, and before those of later ones."""
        with self._changed:
            self._ended_segments.append(function)
            self._changed.notify_all()

    def finish(self) -> None:
        """Ends the sound, and returns after all final texts have been reported."""
        self.commit()
        with self._changed:
            self._changed.wait_for(lambda: not self._ended_segments or self._closing)
        self.close()

    def close(self) -> None:
        """Ends at once; what is not final stays partial. May be called again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._worker is not threading.current_thread():
            self._worker.join()

    def _since(self, segment: SpeechSegment, now: float) -> float:
        """Returns the time at which the end of the speech arrived, if the sound comes in real time."""
        return now - max(0.0, self._endpointer.seconds - segment.speech_end)

    # The thread that asks the model.

    def _work(self) -> None:
        last_partial = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._ended_segments or self._grown())
                if self._closing:
                    return
                ended = self._ended_segments[0] if self._ended_segments else None
                present = self._present
            if ended is not None:
                if isinstance(ended, tuple):
                    self._finish(*ended)
                else:
                    ended()
                with self._changed:
                    self._ended_segments.popleft()
                    self._changed.notify_all()
            elif present is not None:
                with self._changed:  # not too soon after the last one, unless a segment ends
                    delay = last_partial + EVERY - time.monotonic()
                    if delay > 0 and self._changed.wait_for(lambda: self._closing or self._ended_segments, delay):
                        continue
                    present = self._present
                if present is None:
                    continue
                last_partial, self._shown = time.monotonic(), (present.number, len(present.samples))
                if not self._busy():
                    self._write(present)

    def _grown(self) -> bool:
        present = self._present
        if present is None:
            return False
        number, samples = self._shown
        new = len(present.samples) - (samples if number == present.number else 0)
        settled = present.end > present.speech_end and new > 0
        return settled or new >= GROWN * SAMPLE_RATE

    def _write(self, segment: SpeechSegment) -> None:
        try:
            found = self._transcribe(segment.samples)
        except Cancelled:
            return
        except Exception:  # the final pass reports it
            return
        self._last_transcript = (segment.number, len(segment.samples), found)
        with self._changed:
            if segment.number > self._last_discarded:
                self._on_event(PartialText(segment.number, segment.start, segment.end, found.text))

    def _finish(self, segment: SpeechSegment, since: float) -> None:
        earlier = self._last_transcript
        try:
            if earlier is not None and earlier[:2] == (segment.number, len(segment.samples)):
                found = earlier[2]
            else:
                found = self._transcribe(segment.samples)
        except Cancelled:
            return
        except Exception as error:
            self._on_event(Failed(segment.number, segment.start, segment.end, error))
            return
        delay = time.monotonic() - since
        self._on_event(FinalText(segment.number, segment.start, segment.end, shifted(found, segment), delay))


def shifted(transcript: Transcript, segment: SpeechSegment) -> Transcript:
    """Returns a segment's transcript with times from the start of the sound.

    Its last segment ends with the speech, because the silence after it also belongs to the next segment.
    """
    later = tuple(_later(each, segment.start) for each in transcript.segments)
    if later and later[-1].end > segment.speech_end > later[-1].start:
        later = (*later[:-1], replace(later[-1], end=segment.speech_end))
    return replace(transcript, segments=later)


def _later(segment: Segment, seconds: float) -> Segment:
    tokens = tuple(
        replace(
            token,
            start=None if token.start is None else token.start + seconds,
            end=None if token.end is None else token.end + seconds,
        )
        for token in segment.tokens
    )
    return replace(segment, start=segment.start + seconds, end=segment.end + seconds, tokens=tokens)


def whole_transcript(finished: list[Transcript], seconds: float) -> Transcript | None:
    """Returns the transcripts of all segments as one transcript of `seconds` of sound; None if there are none."""
    if not finished:
        return None
    return replace(
        finished[0],
        text=join_texts([each.text for each in finished]),
        segments=tuple(segment for each in finished for segment in each.segments),
        tokens=tuple(number for each in finished for number in each.tokens),
        audio_seconds=seconds,
        compute_seconds=sum(each.compute_seconds for each in finished),
        notes=tuple(dict.fromkeys(note for each in finished for note in each.notes)),
    )
