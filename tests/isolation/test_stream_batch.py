"""Several recordings in one batch: events per recording and their order, and cancellation of a dropped call."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipelines.recognition.test_speech_session import FakeRecogniser, words
from tests.support.tiny_checkpoints import noise
from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions, option
from workbench.pipelines.recognition.recogniser import Recognition, StreamingRecogniser
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.session.values import Partial, Progress, Segment, Token, Transcript

RATE = 16000


@dataclass(frozen=True)
class WriterOptions(ListeningOptions):
    """The options of a model that takes several stretches."""

    batch_size: int = option(1, "stretches side by side", minimum=1)


class FakeWriter(FakeRecogniser):
    """Writes "a b c ..." token by token, one token for each second of a stretch; counts batches, tokens and closes."""

    options_class = WriterOptions

    def __init__(self, notes: tuple[str, ...] = ()):
        super().__init__(lambda n, samples: pytest.fail("a model that streams is asked to stream"))
        self.batches: list[list[int]] = []  # samples of the stretches that were transcribed side by side
        self.tokens = 0
        self.closed = 0
        self.notes = notes

    def recognise_stream(
        self, stretches: Sequence[np.ndarray], options: Any
    ) -> Generator[list[str], None, list[Recognition]]:
        self.batches.append([len(samples) for samples in stretches])
        counts = [max(round(len(samples) / RATE), 1) for samples in stretches]
        try:
            for step in range(1, max(counts) + 1):
                self.tokens += 1
                yield [text(min(step, count)) for count in counts]
        except GeneratorExit:
            self.closed += 1
            raise
        ids = [tuple(range(count)) for count in counts]
        return [
            Recognition(text(len(row)), "en", {}, tuple(Token(n, "abcdefghij"[n]) for n in row), row, self.notes)
            for row in ids
        ]


def text(count: int) -> str:
    return " ".join("abcdefghij"[:count])


def by_number(session: SpeechSession, audios: Sequence[Any], **options: Any) -> dict[int, list[Any]]:
    events: dict[int, list[Any]] = {}
    for number, event in session.stream_batch(audios, **options):
        events.setdefault(number, []).append(event)
    return events


def of_kind(events: Sequence[Any], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_batch_gives_each_recording_its_own_events_in_order() -> None:
    writer = FakeWriter()
    assert isinstance(writer, StreamingRecogniser)
    results = by_number(SpeechSession("m", "r", writer), [noise(1.0), noise(3.0), noise(2.0)], batch_size=2)
    assert [len(batch) for batch in writer.batches] == [2, 1]
    for number, seconds in enumerate((1.0, 3.0, 2.0)):
        events = results[number]
        kinds = [type(event) for event in events if not isinstance(event, Partial)]
        assert kinds == [Progress, Progress, Segment, Progress, Transcript]
        assert [event.activity for event in of_kind(events, Progress)] == [
            "listening for speech",
            "transcribing",
            "done",
        ]
        assert events[-1].text == text(round(seconds)) and events[-1].audio_seconds == seconds
    assert [event.text for event in of_kind(results[1], Partial)] == ["a", "a b", "a b c"]
    assert [event.text for event in of_kind(results[0], Partial)] == ["a"], "an unchanged text is not repeated"


def test_single_recording_gives_an_event_after_every_token() -> None:
    """A cancellation takes effect only between two events."""
    writer = FakeWriter()
    writer.recognise_stream = lambda stretches, options: steady()  # type: ignore[method-assign]

    def steady() -> Generator[list[str], None, list[Recognition]]:
        for _ in range(5):
            yield ["same"]
        return [words()]

    events = list(SpeechSession("m", "r", writer).stream(noise(1.0)))
    assert of_kind(events, Partial) == [Partial(0.0, 1.0, "same")] * 5


def test_partial_texts_have_the_times_of_their_segment() -> None:
    session = SpeechSession("m", "r", FakeWriter())
    events = list(session.stream(noise(5.0), vad="none", max_segment_seconds=2.0))
    segments = of_kind(events, Segment)
    assert len(segments) > 1
    spans = list(dict.fromkeys((event.start, event.end) for event in of_kind(events, Partial)))
    assert spans == [(segment.start, segment.end) for segment in segments]
    for segment in segments:
        texts = [event.text for event in of_kind(events, Partial) if event.start == segment.start]
        assert texts[-1] == segment.text


def test_batch_combines_segments_of_consecutive_recordings() -> None:
    writer = FakeWriter()
    audios = [noise(5.0), noise(2.0, seed=2), noise(4.0, seed=3)]
    results = by_number(SpeechSession("m", "r", writer), audios, vad="none", max_segment_seconds=2.0, batch_size=3)
    assert all(len(batch) == 3 for batch in writer.batches[:-1]) and len(writer.batches[-1]) <= 3
    assert sum(map(sum, writer.batches)) == round(11.0 * RATE)
    for number, audio in enumerate(audios):
        alone = SpeechSession("m", "r", FakeWriter()).transcribe(audio, vad="none", max_segment_seconds=2.0)
        together = results[number][-1]
        assert (together.text, together.tokens, together.segments) == (alone.text, alone.tokens, alone.segments)


@settings(max_examples=10)
@given(
    seconds=st.lists(st.sampled_from([0.5, 1.0, 2.5, 4.0]), min_size=1, max_size=4),
    size=st.integers(1, 5),
    streams=st.booleans(),
)
def test_batch_size_does_not_change_transcripts(seconds: list[float], size: int, streams: bool) -> None:
    def session() -> SpeechSession:
        if streams:
            return SpeechSession("m", "r", FakeWriter())
        return SpeechSession("m", "r", FakeRecogniser(lambda n, samples: words((0.0, 0.1), first=len(samples) % 7)))

    audios = [noise(each, seed=number) for number, each in enumerate(seconds)]
    options: dict[str, Any] = {"vad": "none", "max_segment_seconds": 2.0}
    results = by_number(session(), audios, **options, **({"batch_size": size} if streams else {}))
    for number, audio in enumerate(audios):
        alone = session().transcribe(audio, **options)
        assert (results[number][-1].text, results[number][-1].segments) == (alone.text, alone.segments)


def test_compute_time_of_a_batch_is_divided_by_recording_length(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(np.arange(0.0, 1000.0, 1.0))  # each read advances it by a second
    monkeypatch.setattr("workbench.pipelines.recognition.speech_session.time.perf_counter", lambda: float(next(clock)))
    results = by_number(SpeechSession("m", "r", FakeWriter()), [noise(1.0), noise(3.0)], batch_size=2)
    short, long = (results[number][-1].compute_seconds for number in (0, 1))
    # A second of listening for each, and the one second of the batch by lengths.
    assert (short, long) == (pytest.approx(1 + 0.25), pytest.approx(1 + 0.75))


def test_unreadable_recording_gives_an_error_and_the_others_are_transcribed(tmp_path: Path) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("this is no sound\n" * 40)
    writer = FakeWriter()
    results = by_number(SpeechSession("m", "r", writer), [noise(1.0), bad, noise(2.0)], batch_size=8)
    assert [type(event) for event in results[1]] == [BadInput] and "bad.wav" in str(results[1][0])
    assert [results[number][-1].text for number in (0, 2)] == ["a", "a b"]
    assert len(writer.batches) == 1, "the others are still transcribed side by side"
    with pytest.raises(BadInput, match=r"bad\.wav"):
        list(SpeechSession("m", "r", writer).stream(bad))


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("batch", [False, True])
def test_closed_stream_stops_the_model_within_one_token(tokens: int, batch: bool) -> None:
    writer = FakeWriter()
    session = SpeechSession("m", "r", writer)
    events: Generator[Any, None, None]
    event: Any
    if batch:
        events = session.stream_batch([noise(9.0), noise(9.0, seed=2)], batch_size=2)
    else:
        events = session.stream(noise(9.0))
    for event in events:
        partial = event[1] if batch else event
        if isinstance(partial, Partial) and partial.text == text(tokens):
            break
    events.close()
    assert writer.tokens == tokens and writer.closed == 1
    assert session.transcribe(noise(1.0)).text == "a", "the session is free again"


def test_segment_notes_are_merged_into_the_transcript_without_duplicates() -> None:
    session = SpeechSession("m", "r", FakeWriter(notes=("cut off",)))
    transcript = session.transcribe(noise(5.0), vad="none", max_segment_seconds=2.0)
    assert len(transcript.segments) > 1 and transcript.notes == ("cut off",)


def test_recording_without_speech_ends_without_a_model_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.pipelines.recognition.test_speech_session import put_spans

    put_spans(monkeypatch, notes=("found no speech",))
    writer = FakeWriter()
    results = by_number(SpeechSession("m", "r", writer), [noise(1.0), noise(1.0)], batch_size=4)
    assert [results[number][-1].notes for number in (0, 1)] == [("found no speech",)] * 2
    assert writer.batches == []


def test_model_without_batching_transcribes_segments_one_by_one() -> None:
    recogniser = FakeRecogniser(lambda n, samples: words((0.0, 0.5), first=n))
    results = by_number(SpeechSession("m", "r", recogniser), [noise(1.0), noise(1.0)])
    assert [results[number][-1].text for number in (0, 1)] == ["w0", "w1"]
    with pytest.raises(BadInput, match="m has no option batch_size"):
        by_number(SpeechSession("m", "r", recogniser), [noise(1.0)], batch_size=2)


class ChoosyWriter(FakeWriter):
    """Refuses stretches of more than three seconds."""

    def recognise_stream(
        self, stretches: Sequence[np.ndarray], options: Any
    ) -> Generator[list[str], None, list[Recognition]]:
        if any(len(samples) > 3 * RATE for samples in stretches):
            raise BadInput("a stretch is too long")
        return (yield from super().recognise_stream(stretches, options))


def test_recording_refused_by_the_model_does_not_affect_the_others() -> None:
    session = SpeechSession("m", "pytorch", ChoosyWriter())
    sounds = [noise(seconds) for seconds in (1, 5, 2)]
    ends = {
        number: event
        for number, event in session.stream_batch(sounds, batch_size=3)
        if isinstance(event, (BadInput, Transcript))
    }
    assert [type(ends[number]) for number in range(3)] == [Transcript, BadInput, Transcript]
    assert [ends[number].text for number in (0, 2)] == ["a", "a b"]  # type: ignore[union-attr]
    with pytest.raises(BadInput, match="too long"):
        session.transcribe(sounds[1])


def test_refused_recording_gives_a_single_error_and_no_transcript() -> None:
    writer = ChoosyWriter()
    events = list(SpeechSession("m", "pytorch", writer).stream_batch([noise(8)], vad="none", max_segment_seconds=7.0))
    assert sum(isinstance(event, BadInput) for _, event in events) == 1
    assert not any(isinstance(event, Transcript) for _, event in events)
