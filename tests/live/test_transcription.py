"""Live transcription: partial texts, final texts equal to those of a file, endpointed segments and bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from workbench.audio.read import read
from workbench.audio.silero import silero_probabilities
from workbench.audio.silero_network import CHUNK
from workbench.audio.silero_stream import SileroStream
from workbench.core.visitors import Visitor, current_visitor, visited_by
from workbench.live import endpointing
from workbench.live import transcription as live_transcription
from workbench.live.endpointing import Endpointer, EndpointingLimits
from workbench.live.transcription import (
    Failed,
    FinalText,
    LiveEvent,
    LiveTranscription,
    PartialText,
    SpeechStarted,
    whole_transcript,
)
from workbench.registry.sources import assets
from workbench.session.values import Segment, Transcript

DIGITS: Path = assets() / "samples" / "seven_digits.wav"
RATE = 16000


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    return read(DIGITS).samples


def transcript_of(samples: np.ndarray) -> Transcript:
    """Returns a transcript whose text is the number of samples."""
    seconds = len(samples) / RATE
    return Transcript("m", "r", str(len(samples)), "en", (Segment(0.0, seconds, "x"),), (1,), seconds, 0.0, 0.01)


class Loudness:
    """Replaces the network for hours of sound: loud sound is speech."""

    def probability(self, chunk: np.ndarray) -> float:
        return float(np.abs(chunk).max() > 0.1)

    def forget(self) -> None:
        pass


@pytest.fixture
def loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpointing, "SileroStream", Loudness)


def test_streaming_silero_gives_the_probabilities_of_the_package(digits: np.ndarray) -> None:
    samples = digits[: 60 * CHUNK]
    network = SileroStream()
    probabilities = [network.probability(chunk) for chunk in samples.reshape(-1, CHUNK)]
    assert np.allclose(probabilities, silero_probabilities(samples), atol=1e-4) and max(probabilities) > 0.9
    network.forget()
    assert network.probability(samples[:CHUNK]) == pytest.approx(probabilities[0], abs=1e-6)


def test_endpointed_segments_do_not_overlap_and_hold_all_speech(digits: np.ndarray) -> None:
    endpointer, segments = Endpointer(), []
    for begin in range(0, len(digits), 1600):
        segments += endpointer.feed(digits[begin : begin + 1600])
    segments += endpointer.finish()
    assert [segment.number for segment in segments] == [1, 2]
    assert segments[0].speech_end <= segments[1].start
    silence = segments[1].speech_end - segments[1].start
    assert silence > 0 and segments[1].start <= segments[0].speech_end + 0.41, "with silence before its first word"
    for segment in segments:
        start = round(segment.start * RATE)
        assert np.array_equal(segment.samples, digits[start : start + len(segment.samples)])
    endpointer_at_once = Endpointer()
    segments_at_once = [*endpointer_at_once.feed(digits), *endpointer_at_once.finish()]
    assert [(segment.start, segment.end) for segment in segments_at_once] == [
        (segment.start, segment.end) for segment in segments
    ], "in any pieces"


def test_final_text_equals_the_transcript_of_the_same_samples_as_a_file(digits: np.ndarray) -> None:
    events: list[LiveEvent] = []
    calls: list[np.ndarray] = []
    changed = threading.Condition()

    def transcribe(samples: np.ndarray) -> Transcript:
        calls.append(samples)
        return transcript_of(samples)

    def record(event: LiveEvent) -> None:
        with changed:
            events.append(event)
            changed.notify_all()

    live = LiveTranscription(transcribe, record)
    quarter = len(digits) // 4
    live.feed(digits[:quarter])
    with changed:
        assert changed.wait_for(lambda: any(isinstance(each, PartialText) for each in events), 30), "before the end"
    assert not any(isinstance(each, FinalText) for each in events)
    live.feed(digits[quarter:])
    live.finish()
    final = [each for each in events if isinstance(each, FinalText)]
    assert isinstance(events[0], SpeechStarted) and [each.number for each in final] == [1, 2]
    for each in final:
        start = round(each.start * RATE)
        samples = digits[start : start + round((each.end - each.start) * RATE)]
        assert each.transcript.text == transcript_of(samples).text
        assert each.transcript.segments[0].start == pytest.approx(each.start)
    first, second = (each.transcript.segments for each in final)
    assert first[-1].end <= second[0].start, "cues do not overlap"
    full = whole_transcript([each.transcript for each in final], live.seconds)
    assert full is not None and len(full.segments) == 2 and full.audio_seconds == pytest.approx(len(digits) / RATE)


def test_model_error_is_reported_for_each_segment_separately(loudness: None) -> None:
    events: list[LiveEvent] = []

    def transcribe(samples: np.ndarray) -> Transcript:
        raise RuntimeError("no")

    live = LiveTranscription(transcribe, events.append)
    for _ in range(2):
        live.feed(np.full(RATE, 0.5, np.float32))
        live.feed(np.zeros(RATE, np.float32))
    live.finish()
    assert [event.number for event in events if isinstance(event, Failed)] == [1, 2]


def test_long_speech_is_split_without_loss_of_samples(loudness: None) -> None:
    endpointer = Endpointer(EndpointingLimits(longest=5.0))
    sound = np.random.default_rng(0).choice([-0.5, 0.5], 20 * RATE).astype(np.float32)
    segments = [*endpointer.feed(sound), *endpointer.finish()]
    assert np.array_equal(np.concatenate([segment.samples for segment in segments]), sound)
    assert all(len(segment.samples) <= 7 * RATE for segment in segments) and len(segments) >= 3


def sound_of(minutes: int) -> Iterator[np.ndarray]:
    """Speech for 3 s and silence for 2 s, in turn; and one minute in ten of speech without a pause."""
    for number in range(minutes * 12):
        loud = 5 if number // 12 % 10 == 9 else 3
        yield np.concatenate([np.full(loud * RATE, 0.5, np.float32), np.zeros((5 - loud) * RATE, np.float32)])


def test_memory_stays_bounded_over_two_hours_of_audio(loudness: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_transcription, "EVERY", 0.0)
    finished = 0

    def count(event: LiveEvent) -> None:
        nonlocal finished
        finished += isinstance(event, FinalText)

    live = LiveTranscription(transcript_of, count)
    longest = 0.0
    for sound in sound_of(120):
        live.feed(sound)
        longest = max(longest, live._endpointer.kept_seconds + 32.0 * len(live._ended_segments))
    live.finish()
    assert live.seconds == pytest.approx(7200, abs=0.1) and finished > 1200
    assert longest < 300, "seconds of sound in memory"


def test_model_works_for_the_visitor_who_speaks(loudness: None) -> None:
    visitors: list[Visitor] = []

    def transcribe(samples: np.ndarray) -> Transcript:
        visitors.append(current_visitor())
        return transcript_of(samples)

    with visited_by(Visitor("192.0.2.1", "tab")):
        live = LiveTranscription(transcribe, lambda event: None)
        live.feed(np.full(RATE, 0.5, np.float32))
        live.finish()
    assert set(visitors) == {Visitor("192.0.2.1", "tab")}


def test_close_during_a_transcription_returns_and_can_be_repeated(loudness: None) -> None:
    started, released = threading.Event(), threading.Event()

    def transcribe(samples: np.ndarray) -> Transcript:
        started.set()
        assert released.wait(30)
        return transcript_of(samples)

    live = LiveTranscription(transcribe, lambda event: None)
    live.feed(np.full(RATE, 0.5, np.float32))
    assert started.wait(30)
    threading.Timer(0.01, released.set).start()
    live.close()
    live.close()


@pytest.mark.parametrize("waiting", ["feed", "finish"])
def test_closing_ends_callers_that_wait_for_the_model(loudness: None, waiting: str) -> None:
    started, released = threading.Event(), threading.Event()

    def transcribe(samples: np.ndarray) -> Transcript:
        started.set()
        assert released.wait(30)
        return transcript_of(samples)

    live = LiveTranscription(transcribe, lambda event: None)
    segment = np.concatenate([np.full(RATE // 2, 0.5, np.float32), np.zeros(RATE // 2, np.float32)])
    for _ in range(live_transcription.MAX_WAITING):
        live.feed(segment)
    waiter = threading.Thread(target=live.finish if waiting == "finish" else lambda: live.feed(segment), daemon=True)
    waiter.start()
    assert started.wait(30)
    waiter.join(0.05)
    assert waiter.is_alive(), "the model is far behind"
    threading.Timer(0.01, released.set).start()
    live.close()
    waiter.join(10)
    assert not waiter.is_alive()
