"""Drives a recogniser over a whole recording: voice activity, segments, absolute times, progress.

Every runtime's speech session is this class around that runtime's recogniser, which transcribes one chunk of speech at
a time. This file knows no network.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from workbench.audio.domain import Domain, confidence_in, doubt_about
from workbench.audio.read import Recording, read
from workbench.audio.spans import Span
from workbench.core.errors import BadInput, Unavailable
from workbench.core.options import ListeningOptions, TimedOptions, build_options
from workbench.core.resources import close
from workbench.pipelines.decoding_steps import RequestedSteps
from workbench.pipelines.detection.voice_activity import check_detector, speech_spans
from workbench.pipelines.recognition.padding import MAX_CHUNKS, MAX_PADDED, padded_batches
from workbench.pipelines.recognition.recogniser import (
    BatchingRecogniser,
    NamesPieces,
    PaddingRecogniser,
    Recogniser,
    Recognition,
    StepwiseRecogniser,
    StreamingRecogniser,
)
from workbench.pipelines.recognition.segments import segments_of, with_absolute_times
from workbench.pipelines.recognition.spoken_hypotheses import best_of_chunks
from workbench.pipelines.tracing import make_trace, output_path, substituted_stages, substitution_meta
from workbench.session.protocols import (
    Doubts,
    NamesTokens,
    Session,
    TakesSegments,
    Traces,
    Transcribes,
    checked_recordings,
)
from workbench.session.values import (
    AudioSource,
    Doubt,
    Event,
    Partial,
    Progress,
    Segment,
    Transcript,
)
from workbench.system.memory import peak_resident_bytes
from workbench.text.scripts import join_texts
from workbench.trace.ancestry import Ancestry
from workbench.trace.steps import Follow
from workbench.trace.times import times_meta
from workbench.trace.trace import OutputPath, StageFilter, StageSource, Trace

# The chunks of this many batches are sorted by length together.
POOLED_BATCHES = 4
OUTPUT_STAGES = ("tokens", "tokens.alternatives", "tokens.logprobs", "text")  # stages after the decoding steps


class SpeechSession(Session, Transcribes, Traces, NamesTokens, Doubts, TakesSegments):
    """A recogniser as a session (see `workbench.session.protocols`).

    Args:
        notes: sentences about the model that every transcript carries for its reader.
        device: of an FSMN-VAD that PyTorch opens beside the recogniser.
    """

    def __init__(
        self, model: str, runtime: str, recogniser: Recogniser, notes: tuple[str, ...] = (), device: str = "cpu"
    ):
        self.model = model
        self.runtime = runtime
        self.load_seconds = 0.0  # set by the code that opens the session
        self.domain: Domain | None = None  # what the model was made for, set by the code that opens the session
        self.longest_segment_seconds: float | None = None  # the longest that it was trained on, likewise
        self._recogniser: Recogniser | None = recogniser
        self._notes = notes
        self._device = device

    @property
    def recogniser(self) -> Recogniser:
        """The loaded model; reading it after `close` raises `BadInput`."""
        if self._recogniser is None:
            raise BadInput(f"the session of {self.model} is closed; open it again")
        return self._recogniser

    def stream(self, audio: AudioSource, **options: Any) -> Generator[Event, None, None]:
        """Yields `Progress`, `Partial` text, each finished `Segment`, and last the `Transcript`."""
        for _, event in self.stream_batch([audio], **options):
            if isinstance(event, BadInput):
                raise event
            yield event

    def stream_batch(
        self, audios: Sequence[AudioSource], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """See `Transcribes.stream_batch`."""
        recogniser = self.recogniser
        model_options = build_options(recogniser.options_class, options, self.model)
        check_detector(model_options)
        max_chunks = getattr(model_options, "batch_size", 1)
        if isinstance(recogniser, BatchingRecogniser):
            max_chunks = max(max_chunks, recogniser.max_batch_size)
        elif isinstance(recogniser, PaddingRecogniser) and recogniser.max_batch_seconds:
            max_chunks = MAX_CHUNKS
        # With several recordings, chunks of similar length share a batch, so that a batch has less padding.
        audios = checked_recordings(audios)
        pool = max_chunks * POOLED_BATCHES if max_chunks > 1 and len(audios) > 1 else max_chunks
        pending: list[_Chunk] = []
        for number, audio in enumerate(audios):
            start_time = time.perf_counter()
            try:
                recording = read(audio)
                yield number, Progress(0.0, recording.seconds, "listening for speech")
                speech = speech_spans(recording.samples, self._detection_options(model_options), self._device)
            except BadInput as error:
                yield number, error
                continue
            job = _Job(number, recording, speech.spans, speech.notes, time.perf_counter() - start_time)
            if not speech.spans:
                yield from self._finish(job)
            for place, span in enumerate(speech.spans):
                pending.append(_Chunk(job, place, span))
                if len(pending) == pool:
                    yield from self._transcribe_in_batches(pending, max_chunks, model_options)
                    pending = []
        yield from self._transcribe_in_batches(pending, max_chunks, model_options)

    def _detection_options(self, model_options: ListeningOptions) -> ListeningOptions:
        """Returns the options of the detector: no segment is longer than those that the model was trained on."""
        longest = self.longest_segment_seconds
        if longest is None or model_options.vad == "none":
            return model_options
        return replace(model_options, max_segment_seconds=min(model_options.max_segment_seconds, longest))

    def _transcribe_in_batches(
        self, chunks: list[_Chunk], max_chunks: int, model_options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """Transcribes the chunks in batches of at most `max_chunks`, the shortest first if there are several."""
        if len(chunks) > max_chunks:
            chunks = sorted(chunks, key=lambda chunk: chunk.seconds)
        recogniser = self.recogniser
        if isinstance(recogniser, PaddingRecogniser):
            max_padded = MAX_PADDED if recogniser.pads else math.inf
            ends = padded_batches(
                [chunk.seconds for chunk in chunks], max_chunks, recogniser.max_batch_seconds, max_padded
            )
        else:
            ends = [*range(max_chunks, len(chunks), max_chunks), len(chunks)]
        for first, end in pairwise([0, *ends]):
            yield from self._transcribe_chunks(chunks[first:end], model_options)

    def _transcribe_chunks(
        self, chunks: Sequence[_Chunk], model_options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """Transcribes one batch of chunks; a job whose last chunk is in it ends with its transcript.

        If the model refuses the batch, each chunk is tried alone, so that only the recording at fault ends with the
        error.
        """
        chunks = [chunk for chunk in chunks if not chunk.job.refused]
        if not chunks:
            return
        for chunk in chunks:
            yield chunk.job.number, Progress(chunk.span.start, chunk.job.recording.seconds, "transcribing")
        start_time = time.perf_counter()
        try:
            parts = yield from _recognise(self.recogniser, chunks, model_options)
        except BadInput as error:
            if len(chunks) == 1:
                chunks[0].job.refused = True
                yield chunks[0].job.number, error
                return
            for chunk in chunks:
                yield from self._transcribe_chunks([chunk], model_options)
            return
        seconds = time.perf_counter() - start_time
        samples = sum(len(chunk.samples) for chunk in chunks)
        untimed = isinstance(model_options, TimedOptions) and not model_options.timestamps
        text_of = None if untimed else self.recogniser.text_of
        for chunk, part in zip(chunks, parts, strict=True):
            job = chunk.job
            job.seconds += seconds * len(chunk.samples) / max(samples, 1)  # its share of the batch's time
            segments = segments_of(part, chunk.span, text_of)
            job.parts[chunk.place] = with_absolute_times(part, chunk.span), segments
            for segment in segments:
                yield job.number, segment
            if len(job.parts) == len(job.spans):
                yield from self._finish(job)

    def _finish(self, job: _Job) -> Generator[tuple[int, Event], None, None]:
        yield job.number, Progress(job.recording.seconds, job.recording.seconds, "done")
        yield job.number, self._transcript(job)

    def trace(
        self,
        source: AudioSource,
        stages: str = "*",
        given: StageSource = None,
        out: OutputPath = None,
        *,
        steps: str = "",
        follow: Follow = None,
        **options: Any,
    ) -> Trace:
        """Returns the stages that match the glob, of one pass over the whole recording, without voice activity
        detection, and of the decoding steps that are asked for.
        """
        recogniser = self.recogniser
        model_options = build_options(recogniser.options_class, options, self.model)
        requested_stages, place = StageFilter(stages), output_path(out)
        recording = read(source)
        substituted = substituted_stages(given, recording.digest)
        requested_steps = RequestedSteps(steps, follow, substituted)
        if requested_steps.choice is not None and not isinstance(recogniser, StepwiseRecogniser):
            raise BadInput(f"decoding steps are requested, but {self.model} computes all its tokens in one pass")
        arrays = recogniser.trace(recording.samples, model_options, requested_stages, substituted)
        meta: dict[str, Any] = {"input_digest": recording.digest, "audio_seconds": recording.seconds}
        if requested_steps.choice is not None:
            step_stages, steps_meta = self._decoding_steps(
                recording.samples, model_options, requested_steps, requested_stages, arrays.get("tokens")
            )
            outputs = {stage: array for stage, array in arrays.items() if stage in OUTPUT_STAGES}
            inner = {stage: array for stage, array in arrays.items() if stage not in OUTPUT_STAGES}
            arrays = inner | step_stages | outputs
            meta |= steps_meta
        meta |= {**substitution_meta(substituted), **times_meta(recogniser)}
        return make_trace(self, arrays, stages, recogniser.dtype, options, place, **meta)

    def _decoding_steps(
        self,
        samples: np.ndarray,
        model_options: Any,
        requested_steps: RequestedSteps,
        requested_stages: StageFilter,
        traced_ids: np.ndarray | None,
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns the stages of the requested decoding steps, and the metadata about them.

        Without ids to follow, the steps follow the hypotheses of the beam search, or the ids that the model writes.

        Args:
            traced_ids: the ids that the model has written in this trace; None if it has written none.
        """
        recogniser = self.recogniser
        assert isinstance(recogniser, StepwiseRecogniser)
        ids: Sequence[int] | Ancestry = ()
        if requested_steps.needs_ids:
            ancestry = recogniser.ancestry(samples, model_options)
            if ancestry is not None:
                ids = ancestry
            elif traced_ids is not None:
                ids = traced_ids.tolist()
            else:
                ids = self.recogniser.recognise(samples, model_options).ids
        follow = partial(recogniser.follow, samples, model_options)
        return requested_steps.traced(ids, requested_stages, follow, self.model)

    def token_texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """See `NamesTokens.token_texts`."""
        if not isinstance(self.recogniser, NamesPieces):
            raise Unavailable(f"{self.model} does not show the texts of its tokens; its recogniser has no pieces")
        return self.recogniser.pieces(ids)

    def close(self) -> None:
        """Drops the model and frees it."""
        recogniser, self._recogniser = self._recogniser, None
        close(recogniser)

    def _doubt(self, job: _Job, recognitions: Sequence[Recognition]) -> Doubt | None:
        """Returns why the recording is outside the model's domain; None if it is inside or the domain is unknown."""
        if self.domain is None:
            return None
        text = "".join(part.text for part in recognitions)
        confidence = confidence_in(text, [token.confidence for part in recognitions for token in part.tokens])
        kind = self.domain.outside(job.recording.samples, job.spans, confidence)
        return Doubt(kind, doubt_about(kind, self.domain.name)) if kind else None

    def _transcript(self, job: _Job) -> Transcript:
        parts = [job.parts[place] for place in sorted(job.parts)]
        recognitions = [part for part, _ in parts]
        tags = {
            kind: _majority(part.tags.get(kind) for part in recognitions) for part in recognitions for kind in part.tags
        }
        notes = dict.fromkeys(note for part in recognitions for note in part.notes)
        return Transcript(
            model=self.model,
            runtime=self.runtime,
            text=join_texts([part.text for part in recognitions]),
            language=_majority(part.language for part in recognitions),
            segments=tuple(segment for _, segments in parts for segment in segments),
            tokens=tuple(number for part in recognitions for number in part.ids),
            audio_seconds=job.recording.seconds,
            load_seconds=self.load_seconds,
            compute_seconds=job.seconds,
            memory_bytes=peak_resident_bytes(),
            tags={kind: name for kind, name in tags.items() if name},
            notes=(*self._notes, *job.recording.notes, *job.notes, *notes),
            hypotheses=best_of_chunks([part.hypotheses for part in recognitions], join_texts),
            doubt=self._doubt(job, recognitions),
        )


@dataclass
class _Job:
    """A recording on its way to a transcript."""

    number: int
    recording: Recording
    spans: tuple[Span, ...]  # of the chunks to transcribe
    notes: tuple[str, ...]
    seconds: float  # compute time so far
    refused: bool = False  # whether the model refused a chunk
    parts: dict[int, tuple[Recognition, list[Segment]]] = field(default_factory=dict)  # by the chunk's index


@dataclass(frozen=True)
class _Chunk:
    """A chunk of speech of one job."""

    job: _Job
    place: int  # its index among the chunks of its recording
    span: Span

    @property
    def seconds(self) -> float:
        return self.span.end - self.span.start

    @property
    def samples(self) -> np.ndarray:
        first, end = (round(edge * self.job.recording.sample_rate) for edge in (self.span.start, self.span.end))
        return self.job.recording.samples[first:end]


def _recognise(
    recogniser: Recogniser, chunks: Sequence[_Chunk], model_options: Any
) -> Generator[tuple[int, Event], None, list[Recognition]]:
    """Returns the recognition of each chunk; yields the text so far if the model writes token by token."""
    if isinstance(recogniser, PaddingRecogniser) and len(chunks) > 1:
        return recogniser.recognise_batch([chunk.samples for chunk in chunks], model_options)
    if not isinstance(recogniser, StreamingRecogniser):
        return [recogniser.recognise(chunk.samples, model_options) for chunk in chunks]
    writing = recogniser.recognise_stream([chunk.samples for chunk in chunks], model_options)
    shown_texts = [""] * len(chunks)
    while True:
        try:
            texts = next(writing)
        except StopIteration as done:
            recognitions: list[Recognition] = done.value
            return recognitions
        for place, (chunk, text) in enumerate(zip(chunks, texts, strict=True)):
            # Yields after every token even without new text, as a cancelled reader can only stop here.
            if text != shown_texts[place] or len(chunks) == 1:
                shown_texts[place] = text
                yield chunk.job.number, Partial(chunk.span.start, chunk.span.end, text)


def _majority(names: Iterable[str | None]) -> str | None:
    counts = Counter(name for name in names if name)
    return counts.most_common(1)[0][0] if counts else None
