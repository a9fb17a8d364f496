"""Which stretches of a recording a recogniser gets to hear, by the user's `vad` option."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.spans import Span, cap_spans, frame_levels
from workbench.errors import BadInput
from workbench.options import ListeningOptions

BUILT_IN = ("auto", "silero", "none")
END_SILENCE_MS = 800  # of FSMN-VAD, unless an option says otherwise: what its published configuration says for talk
MERGE_SECONDS = 0.6  # a shorter pause stays inside a stretch: recognisers hear better with context

_one_at_a_time = threading.Lock()  # a detector is loaded for each recording, and its libraries with the first


@dataclass(frozen=True)
class Found:
    """The stretches, and what the user should know about how they were found."""

    spans: tuple[Span, ...]
    notes: tuple[str, ...] = ()


def check_detector(options: ListeningOptions) -> None:
    """Raises `BadInput` for an option that the chosen detector has not got."""
    if options.vad in BUILT_IN and options.end_silence_ms is not None:
        raise BadInput(
            f"option end_silence_ms is {options.end_silence_ms} and option vad is {options.vad!r}; "
            "end_silence_ms applies where vad names an FSMN-VAD"
        )


def speech_spans(samples: np.ndarray, options: ListeningOptions) -> Found:
    """The stretches of 16 kHz samples [n] to transcribe, none longer than `options.max_segment_seconds`.

    A recording that fits in one stretch is taken whole unless a detector was asked for: the recognisers were trained
    on such, silence at the edges included. Raises `BadInput` as `check_detector`, and for a detector that is not there.
    """
    check_detector(options)
    seconds = len(samples) / SAMPLE_RATE
    longest = options.max_segment_seconds
    whole = Span(0.0, seconds)
    if options.vad in ("auto", "none") and seconds <= longest:
        return Found((whole,))
    levels = frame_levels(samples)
    if options.vad == "none":
        return Found(tuple(cap_spans([whole], longest, levels)))
    if options.vad in ("auto", "silero"):
        from workbench.audio.silero import silero_spans

        spans, detector = silero_spans(samples), "silero-vad"
    else:
        with _one_at_a_time:
            spans = _fsmn_spans(samples, options)
        detector = "FSMN-VAD"
    if not spans:
        return Found((), (f"{detector} found no speech in the recording",))
    return Found(tuple(cap_spans(spans, longest, levels, merge_gap=MERGE_SECONDS)))


def _fsmn_spans(samples: np.ndarray, options: ListeningOptions) -> list[Span]:
    """By the detector in a directory, on PyTorch, or in a GGUF file, on ggml."""
    from workbench.families.fsmn_vad import FsmnVadOptions

    place = options.vad
    if Path(place).is_dir():
        from workbench.runtimes.pytorch.fsmn_vad import open_fsmn_vad

        detector = open_fsmn_vad(place)
    elif Path(place).is_file():
        from workbench.runtimes.gguf.fsmn_vad import open_fsmn_vad as open_file

        detector, _ = open_file(place)
    else:
        raise BadInput(
            f"option vad is {place!r}; expected {', '.join(BUILT_IN)}, or the id, directory or GGUF file of an FSMN-VAD"
        )
    # Its own default, a schedule made for whole minutes, would cut talk at 60 s and leave fragments.
    silence = END_SILENCE_MS if options.end_silence_ms is None else options.end_silence_ms
    return detector.spans(samples, options=FsmnVadOptions(end_silence_ms=silence))
