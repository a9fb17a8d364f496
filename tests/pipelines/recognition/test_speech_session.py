"""Transcription of whole recordings: split into chunks without loss, and joined with times of the whole recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_checkpoints import noise
from workbench.audio.spans import Span
from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions, TimedOptions
from workbench.pipelines.detection.voice_activity import SpeechFound
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.pipelines.recognition.segments import PAUSE_SECONDS, segments_of
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.session.protocols import Session
from workbench.session.values import Progress, Segment, Token, Transcript
from workbench.text.scripts import join_texts
from workbench.trace.trace import StageFilter

RATE = 16000
EMPTY = Recognition("", None, {}, (), ())
RecogniseChunk = Callable[[int, np.ndarray], Recognition]


class FakeRecogniser:
    """Returns the recognitions of a function, and records the chunks it receives. Token n is the word `w<n>`."""

    options_class = TimedOptions
    dtype = "float32"

    def __init__(self, recognise_chunk: RecogniseChunk):
        self.answer = recognise_chunk  # the name recognise_stream would make it a streaming recogniser
        self.chunks: list[np.ndarray] = []
        self.options: list[ListeningOptions] = []

    def recognise(self, samples: np.ndarray, options: ListeningOptions) -> Recognition:
        self.chunks.append(samples)
        self.options.append(options)
        return self.answer(len(self.chunks) - 1, samples)

    def text_of(self, ids: Sequence[int]) -> str:
        return " ".join(f"w{number}" for number in ids)

    def trace(
        self, samples: np.ndarray, options: Any, requested_stages: StageFilter, given: Any = None
    ) -> dict[str, np.ndarray]:
        stages = {"frontend.fbank": samples[:4], "tokens": np.array([1])}
        return {name: array for name, array in stages.items() if requested_stages(name)}


def words(*times: tuple[float, float], first: int = 0, **tags: str) -> Recognition:
    """A recognition of words at these times, numbered from `first`."""
    tokens = tuple(Token(first + n, f" w{first + n}", *time) for n, time in enumerate(times))
    ids = tuple(token.id for token in tokens)
    return Recognition(" ".join(f"w{n}" for n in ids), tags.pop("language", None), tags, tokens, (99, *ids))


def transcribe(recognise_chunk: RecogniseChunk, seconds: float, **options: Any) -> tuple[FakeRecogniser, Transcript]:
    recogniser = FakeRecogniser(recognise_chunk)
    return recogniser, SpeechSession("m", "r", recogniser).transcribe(noise(seconds), **options)


def put_spans(monkeypatch: pytest.MonkeyPatch, *spans: tuple[float, float], notes: tuple[str, ...] = ()) -> None:
    """Make voice activity detection return these spans."""
    speech = SpeechFound(tuple(Span(*span) for span in spans), notes)
    monkeypatch.setattr(
        "workbench.pipelines.recognition.speech_session.speech_spans", lambda samples, options, device: speech
    )


# The chunks that the recogniser receives.


@pytest.mark.parametrize(
    ("seconds", "cap"), [(5.0, 30.0), (30.0, 30.0), (30.0001, 30.0), (100.0, 30.0), (61.7, 2.5), (3.3, 1.0)]
)
def test_chunks_cover_all_samples_once_and_stay_within_the_limit(seconds: float, cap: float) -> None:
    recogniser, _ = transcribe(lambda n, samples: EMPTY, seconds, vad="none", max_segment_seconds=cap)
    np.testing.assert_array_equal(np.concatenate(recogniser.chunks), noise(seconds)[0])
    assert max(map(len, recogniser.chunks)) <= cap * RATE
    assert min(map(len, recogniser.chunks)) >= min(cap / 5, seconds) * RATE, "no very short chunk"


def test_recording_within_the_limit_is_one_chunk() -> None:
    recogniser, _ = transcribe(lambda n, samples: EMPTY, 29.9)
    [samples] = recogniser.chunks
    assert len(samples) == round(29.9 * RATE)


@pytest.mark.parametrize(
    ("options", "longest"),
    [({}, 8.0), ({"max_segment_seconds": 20}, 8.0), ({"max_segment_seconds": 5}, 5.0), ({"vad": "none"}, 30.0)],
)
def test_segments_stay_within_the_training_length_of_the_model(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], longest: float
) -> None:
    received: list[ListeningOptions] = []

    def record_options(samples: np.ndarray, vad_options: ListeningOptions, device: str) -> SpeechFound:
        received.append(vad_options)
        return SpeechFound(())

    monkeypatch.setattr("workbench.pipelines.recognition.speech_session.speech_spans", record_options)
    session = SpeechSession("m", "r", FakeRecogniser(lambda n, samples: EMPTY))
    session.longest_segment_seconds = 8.0
    session.transcribe(noise(1.0), **options)
    assert [vad_options.max_segment_seconds for vad_options in received] == [longest]


def test_recogniser_receives_validated_options(monkeypatch: pytest.MonkeyPatch) -> None:
    recogniser, _ = transcribe(lambda n, samples: EMPTY, 1.0, dither=1, timestamps=False)
    assert recogniser.options == [TimedOptions(dither=1.0, timestamps=False)]
    with pytest.raises(BadInput, match="m has no option langauge"):
        transcribe(lambda n, samples: EMPTY, 1.0, langauge="en")


# Segments.


def test_token_times_are_relative_to_the_start_of_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    put_spans(monkeypatch, (1.0, 3.0), (5.5, 8.0))
    recognitions = [words((0.1, 0.4), (0.5, 1.9)), words((0.0, 0.5), first=7)]
    recogniser, transcript = transcribe(lambda n, samples: recognitions[n], 10.0)
    recording = noise(10.0)[0]
    np.testing.assert_array_equal(recogniser.chunks[1], recording[int(5.5 * RATE) : 8 * RATE])
    assert transcript.segments == (
        Segment(1.0, 3.0, "w0 w1", (Token(0, " w0", 1.1, 1.4), Token(1, " w1", 1.5, 2.9)), {}),
        Segment(5.5, 8.0, "w7", (Token(7, " w7", 5.5, 6.0),), {}),
    )
    assert transcript.text == "w0 w1 w7" and transcript.tokens == (99, 0, 1, 99, 7)


def test_segments_are_split_in_the_middle_of_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    put_spans(monkeypatch, (10.0, 20.0))
    pause = PAUSE_SECONDS + 0.5
    recognition = words((0.5, 1.0), (1.0 + PAUSE_SECONDS, 3.0), (3.0 + pause, 5.0), first=4)
    _, transcript = transcribe(lambda n, samples: recognition, 20.0)
    middle = 10 + 3.0 + pause / 2
    assert [(s.start, s.end, s.text) for s in transcript.segments] == [(10.0, middle, "w4 w5"), (middle, 20.0, "w6")]


def test_sentence_end_splits_a_segment_of_sufficient_length(monkeypatch: pytest.MonkeyPatch) -> None:
    put_spans(monkeypatch, (0.0, 10.0))
    texts = [" a.", " b。", " c", " d?", " e"]
    times = [(0.0, 1.0), (1.0, 4.5), (4.5, 5.0), (5.0, 9.0), (9.0, 9.5)]
    tokens = tuple(Token(n, text, *time) for n, (text, time) in enumerate(zip(texts, times, strict=True)))
    recognition = Recognition("a. b。 c d? e", None, {}, tokens, ())
    _, transcript = transcribe(lambda n, samples: recognition, 10.0)
    assert [[token.id for token in segment.tokens] for segment in transcript.segments] == [[0, 1], [2, 3], [4]]


def test_token_times_are_clipped_to_the_end_of_the_span(monkeypatch: pytest.MonkeyPatch) -> None:
    put_spans(monkeypatch, (2.0, 3.0))
    _, transcript = transcribe(lambda n, samples: words((0.9, 1.1), (1.2, 1.3)), 5.0)
    [segment] = transcript.segments
    assert [(token.start, token.end) for token in segment.tokens] == [(2.9, 3.0), (3.0, 3.0)]


@pytest.mark.parametrize("timestamps", [True, False])
def test_chunk_without_token_times_is_one_segment(monkeypatch: pytest.MonkeyPatch, timestamps: bool) -> None:
    put_spans(monkeypatch, (1.0, 9.0))
    recognition = words((0.0, 1.0), (5.0, 6.0), emotion="SAD")
    if timestamps:  # the model returns no times
        recognition = replace(
            recognition, tokens=tuple(replace(token, start=None, end=None) for token in recognition.tokens)
        )
    _, transcript = transcribe(lambda n, samples: recognition, 10.0, timestamps=timestamps)
    untimed = (Token(0, " w0"), Token(1, " w1"))
    assert transcript.segments == (Segment(1.0, 9.0, "w0 w1", untimed, {"emotion": "SAD"}),)


@given(
    start=st.floats(0, 1000),
    length=st.floats(0.1, 30),
    edges=st.lists(st.floats(0, 31), max_size=20).map(sorted),
    stops=st.lists(st.sampled_from(["", ".", "！"]), min_size=20, max_size=20),
)
def test_segments_cover_the_span_and_keep_all_tokens_in_order(
    start: float, length: float, edges: list[float], stops: list[str]
) -> None:
    span = Span(start, start + length)
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    tokens = tuple(Token(n, f"w{n}{stops[n]}", *pair) for n, pair in enumerate(pairs))
    segments = segments_of(Recognition("text", None, {}, tokens, ()), span, lambda ids: "-".join(map(str, ids)))
    assert [token.id for segment in segments for token in segment.tokens] == list(range(len(tokens)))
    assert (segments[0].start, segments[-1].end) == (span.start, span.end)
    assert all(left.end == right.start for left, right in pairwise(segments))
    for segment in segments:
        assert segment.start <= segment.end
        for token in segment.tokens:
            assert token.start is not None and token.end is not None
            assert segment.start <= token.start <= token.end <= segment.end


# The transcript.


def test_empty_recognition_gives_an_empty_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    _, transcript = transcribe(lambda n, samples: EMPTY, 2.0)
    assert (transcript.text, transcript.segments, transcript.tokens, transcript.language) == ("", (), (), None)
    assert transcript.audio_seconds == 2.0 and transcript.notes == ()
    put_spans(monkeypatch, notes=("found no speech",))
    recogniser, transcript = transcribe(lambda n, samples: words((0.0, 1.0)), 2.0)
    assert recogniser.chunks == [] and transcript.segments == () and transcript.notes == ("found no speech",)


def test_language_and_tags_are_the_most_frequent_of_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    put_spans(monkeypatch, (0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0))
    recognitions = [
        words((0.0, 0.5), language="zh", emotion="SAD"),
        words((0.0, 0.5), language="en", emotion="HAPPY"),
        words((0.0, 0.5), language="en", event="BGM"),
        EMPTY,
    ]
    _, transcript = transcribe(lambda n, samples: recognitions[n], 4.0)
    assert transcript.language == "en" and transcript.tags == {"emotion": "SAD", "event": "BGM"}
    assert [dict(segment.tags) for segment in transcript.segments] == [
        {"emotion": "SAD"},
        {"emotion": "HAPPY"},
        {"event": "BGM"},
    ]


def test_progress_grows_and_segments_come_before_the_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    put_spans(monkeypatch, (1.0, 2.0), (3.0, 4.0))
    session = SpeechSession("m", "r", FakeRecogniser(lambda n, samples: words((0.0, 0.5))))
    assert isinstance(session, Session)
    events = list(session.stream(noise(5.0)))
    progress = [event for event in events if isinstance(event, Progress)]
    assert [event.done for event in progress] == [0.0, 1.0, 3.0, 5.0] and {event.total for event in progress} == {5.0}
    kinds = [type(event) for event in events]
    assert kinds == [Progress, Progress, Segment, Progress, Segment, Progress, Transcript]
    transcript = events[-1]
    assert isinstance(transcript, Transcript) and transcript.segments == (events[2], events[4])


def test_chunks_are_recognised_lazily() -> None:
    recogniser = FakeRecogniser(lambda n, samples: words((0.0, 0.5)))
    events = SpeechSession("m", "r", recogniser).stream(noise(10.0), vad="none", max_segment_seconds=1.0)
    assert not recogniser.chunks
    while not isinstance(next(events), Segment):
        pass
    events.close()
    assert len(recogniser.chunks) == 1


def test_recording_note_is_added_to_the_transcript(tmp_path: Path) -> None:
    import soundfile

    soundfile.write(tmp_path / "x.wav", noise(1.0)[0], RATE)
    content = (tmp_path / "x.wav").read_bytes()
    (tmp_path / "x.wav").write_bytes(content[: len(content) // 2])
    session = SpeechSession("m", "r", FakeRecogniser(lambda n, samples: EMPTY))
    [note] = session.transcribe(tmp_path / "x.wav").notes
    assert "the header promises 1.0 s but the file holds 0.5 s" in note


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], ""),
        (["", "one", "", "two", ""], "one two"),
        (["你好", "世界"], "你好世界"),
        (["你好", "ok", "世界"], "你好ok世界"),
        (["こん", "にちは"], "こんにちは"),
        (["全，", "角"], "全，角"),
        (["안녕", "하세요"], "안녕 하세요"),  # Korean is written with spaces
    ],
)
def test_texts_are_joined_with_spaces_according_to_script(texts: list[str], expected: str) -> None:
    assert join_texts(texts) == expected


# Traces and closing.


def test_trace_metadata_names_model_runtime_options_and_input() -> None:
    session = SpeechSession("m", "r", FakeRecogniser(lambda n, samples: EMPTY))
    trace = session.trace(noise(1.0), stages="tokens", dither=2.0)
    assert list(trace) == ["tokens"]
    assert trace.meta["model"] == "m" and trace.meta["runtime"] == "r" and trace.meta["dtype"] == "float32"
    assert trace.meta["options"] == {"dither": 2.0} and trace.meta["audio_seconds"] == 1.0
    assert "numpy" in trace.meta["versions"]
    same_input, other_input = (session.trace(noise(1.0, seed=seed)).meta["input_digest"] for seed in (1, 2))
    assert same_input == trace.meta["input_digest"] != other_input


def test_stage_pattern_without_a_match_is_refused() -> None:
    session = SpeechSession("m", "r", FakeRecogniser(lambda n, samples: EMPTY))
    with pytest.raises(BadInput, match=r"^no stage of m on r matches 'decoder\.\*'; '\*' takes all stages$"):
        session.trace(noise(1.0), stages="decoder.*")


def test_closed_session_raises_an_error() -> None:
    session = SpeechSession("m", "r", FakeRecogniser(lambda n, samples: EMPTY))
    session.close()
    session.close()
    for call in (lambda: session.transcribe(noise(1.0)), lambda: session.trace(noise(1.0))):
        with pytest.raises(BadInput, match="the session of m is closed; open it again"):
            call()
