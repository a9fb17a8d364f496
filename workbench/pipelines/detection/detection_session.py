"""FSMN-VAD as a session on any runtime. Its transcript has segments but no text."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.audio.read import read
from workbench.core.errors import BadInput, Unavailable
from workbench.core.options import build_options
from workbench.core.resources import close
from workbench.families.voice_activity.fsmn_vad import FsmnVadOptions
from workbench.pipelines.detection.fsmn_vad import FsmnVad
from workbench.pipelines.features import front_end_times
from workbench.pipelines.tracing import make_trace, output_path
from workbench.session.protocols import Detects, Session, Traces, checked_recordings
from workbench.session.values import AudioSource, Event, Progress, Segment, Transcript
from workbench.system.memory import peak_resident_bytes
from workbench.trace.times import RowTimes, times_meta
from workbench.trace.trace import OutputPath, StageFilter, StageSource, Trace

NO_SPEECH = "FSMN-VAD found no speech in the recording"


class DetectionSession(Session, Detects, Traces):
    """A loaded FSMN-VAD (see `workbench.session.protocols`).

    Args:
        model, runtime: their names in results.
        detector: the pipeline around the runtime's network.
        notes: sentences about the model that every transcript carries for its reader.
    """

    def __init__(self, model: str, runtime: str, detector: FsmnVad, notes: Sequence[str] = ()):
        self.model = model
        self.runtime = runtime
        self._notes = tuple(notes)
        self.load_seconds = 0.0  # set by the code that opens the session
        self._detector: FsmnVad | None = detector

    @property
    def detector(self) -> FsmnVad:
        """The loaded detector; reading it after `close` raises `BadInput`."""
        if self._detector is None:
            raise BadInput(f"the session of {self.model} is closed; open it again")
        return self._detector

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """See `workbench.trace.times.TimesRows`."""
        config = self.detector.frontend.config
        return {**front_end_times(config), "vad.scores": RowTimes(0.0, config.frame_seconds)}

    def stream(self, audio: AudioSource, **options: Any) -> Generator[Event, None, None]:
        """Yields `Progress`, then one `Segment` per span of speech, and last the `Transcript`."""
        model_options = build_options(FsmnVadOptions, options, self.model)
        start_time = time.perf_counter()
        recording = read(audio)
        yield Progress(0.0, recording.seconds, "listening for speech")
        segments = tuple(
            Segment(span.start, span.end, "") for span in self.detector.spans(recording.samples, options=model_options)
        )
        yield from segments
        yield Transcript(
            model=self.model,
            runtime=self.runtime,
            text="",
            language=None,
            segments=segments,
            tokens=(),
            audio_seconds=recording.seconds,
            load_seconds=self.load_seconds,
            compute_seconds=time.perf_counter() - start_time,
            memory_bytes=peak_resident_bytes(),
            notes=(*self._notes, *recording.notes, *(() if segments else (NO_SPEECH,))),
        )

    def stream_batch(
        self, audios: Sequence[AudioSource], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """See `Transcribes.stream_batch`; processes one recording after another."""
        build_options(FsmnVadOptions, options, self.model)
        for number, audio in enumerate(checked_recordings(audios)):
            try:
                for event in self.stream(audio, **options):
                    yield number, event
            except BadInput as error:
                yield number, error

    def detect(self, audio: AudioSource, **options: Any) -> tuple[Segment, ...]:
        """Returns the speech in a recording, in order, as segments without text."""
        return self.transcribe(audio, **options).segments

    def trace(
        self, source: AudioSource, stages: str = "*", given: StageSource = None, out: OutputPath = None, **options: Any
    ) -> Trace:
        """Returns the front end's stages, `vad.scores` [frames, classes] and `vad.spans` [spans, 2] in seconds."""
        if options.get("steps") or options.get("follow") is not None:
            raise BadInput(f"decoding steps are requested, but {self.model} writes no tokens")
        model_options, requested_stages = build_options(FsmnVadOptions, options, self.model), StageFilter(stages)
        place = output_path(out)
        if given is not None:
            raise Unavailable(
                f"{self.model} has no stages between its features and its scores to compute by themselves"
            )
        recording, detector = read(source), self.detector
        front = detector.frontend(recording.samples)
        arrays = {f"frontend.{stage}": getattr(front, stage) for stage in ("fbank", "lfr", "features")}
        arrays["vad.scores"] = detector.scores(recording.samples)
        spans = detector.spans(recording.samples, options=model_options)
        arrays["vad.spans"] = np.array([(span.start, span.end) for span in spans], dtype=np.float64).reshape(-1, 2)
        recorded = {stage: array for stage, array in arrays.items() if requested_stages(stage)}
        meta = {"input_digest": recording.digest, "audio_seconds": recording.seconds, **times_meta(self)}
        return make_trace(self, recorded, stages, detector.network.dtype, options, place, **meta)

    def close(self) -> None:
        """Drops the model and frees it."""
        detector, self._detector = self._detector, None
        close(detector)
