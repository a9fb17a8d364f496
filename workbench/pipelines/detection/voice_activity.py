"""Selects the chunks of a recording to transcribe, as the user's option `vad` says.

First, quiet recordings are amplified to the detector's working level, and the detector finds speech. Loud parts that it
left out are checked again. Then the spans of speech become chunks with some silence around them, as recognisers were
trained on such chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from workbench.audio.constants import FRAME_SHIFT, SAMPLE_RATE
from workbench.audio.levels import ENOUGH_DB, amplified, loud_level, noise_like
from workbench.audio.spans import Span, between, cap_spans, frame_levels, joined_short, widened
from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.families import FAMILIES
from workbench.pipelines.detection.fsmn_vad import FsmnVad

BUILT_IN = ("auto", "silero", "none")
# Of FSMN-VAD, unless an option says otherwise: the value of its published configuration for conversation.
END_SILENCE_MS = 800
# Seconds around each span of speech that are transcribed too: soft beginnings and ends, and silence.
PAD_SECONDS = 0.5
# Padded spans with a shorter pause between them become one chunk, as recognisers do better with context.
MERGE_SECONDS = 1.0
# A shorter chunk is joined with a neighbour: recognisers were trained on sentences and misrecognise single words.
SHORT_SECONDS = 8.0
JOIN_SECONDS = 4.0  # if the neighbour is no further away
# A pause this short stays in the chunk however loud it is.
SHORT_PAUSE_SECONDS = 0.6
SILERO = {"min_speech_ms": 100, "pad_ms": 100}  # its default 250 ms drop short words, its 30 ms cut them

_SPEECH_RANGE = 25.0  # dB: parts further below the loudest speech are not checked again
_SUSPECT_SECONDS = 0.2  # silero checks a gap again if it has this much loud audio
# dB below the mean level of found speech: audio above this limit that was left out may deserve a note.
_AS_LOUD = 10.0
_MUCH_SECONDS = 3.0  # the note appears from this much on
_MUCH_SHARE = 0.1  # and from this share of the found speech on
_QUIET_FRAMES = 60  # the quietest part of a recording, enough to tell noise from tones
_NOISY_DB = 35.0  # a recording is noisy if its quietest part is noise less far below its loudest
_INAUDIBLE = -85.0  # dB of full scale, little more than the rounding noise of 16 bits

_one_at_a_time = threading.Lock()  # each recording loads a detector, the first one loads its libraries too


@dataclass(frozen=True)
class _Detector:
    """The constants of one voice activity model."""

    name: str
    level_db: float  # quieter recordings are amplified to this level
    # A pause this far below the mean level of found speech is transcribed together with the speech.
    pause_db: float
    # The same limit for a pause that contains tones, for which a recogniser may write words.
    tones_db: float


# FSMN-VAD takes some music for speech, and more of it at a higher level. A recogniser writes words for music.
_SILERO = _Detector("silero-vad", ENOUGH_DB, 8.0, 8.0)
_FSMN = _Detector("FSMN-VAD", -52.0, 3.0, 12.0)


@dataclass(frozen=True)
class SpeechFound:
    """The chunks to transcribe, and what the user should know about how they were found."""

    spans: tuple[Span, ...]
    notes: tuple[str, ...] = ()


def check_detector(options: ListeningOptions) -> None:
    """Raises `BadInput` if the chosen detector does not have one of the options."""
    if options.vad in BUILT_IN and options.end_silence_ms is not None:
        raise BadInput(
            f"option end_silence_ms is {options.end_silence_ms} and option vad is {options.vad!r}; "
            "end_silence_ms applies where vad names an FSMN-VAD"
        )


def speech_spans(samples: np.ndarray, options: ListeningOptions, device: str = "cpu") -> SpeechFound:
    """Returns the spans of 16 kHz samples [n] to transcribe, none longer than `options.max_segment_seconds`.

    A recording that fits in one chunk is taken whole unless the user names a detector, as recognisers were trained on
    such recordings, with silence at the edges. Raises `BadInput` like `check_detector`, and if the detector does not
    exist.

    Args:
        device: of an FSMN-VAD on PyTorch.
    """
    check_detector(options)
    seconds = len(samples) / SAMPLE_RATE
    longest = options.max_segment_seconds
    recording_span = Span(0.0, seconds)
    if options.vad in ("auto", "none") and seconds <= longest:
        return SpeechFound((recording_span,))
    levels = frame_levels(samples)
    if options.vad == "none":
        return SpeechFound(tuple(cap_spans([recording_span], longest, levels)))
    if options.vad in ("auto", "silero"):
        speech, detector = _silero_spans(samples, levels), _SILERO
    else:
        with _one_at_a_time:
            speech, detector = _fsmn_spans(_amplified_for_fsmn(samples, levels), options, device), _FSMN
    chunks = _chunks(samples, speech, levels, detector, longest)
    return SpeechFound(tuple(chunks), _notes(detector.name, levels, speech, chunks, seconds))


def _silero_spans(samples: np.ndarray, levels: np.ndarray) -> list[Span]:
    """Returns the spans found by the packaged silero network, and by a second run on the loud gaps between them."""
    from workbench.audio.silero import SileroOptions, silero_spans, spans_with_resets

    options = SileroOptions(**SILERO)
    spans = silero_spans(amplified(samples, _SILERO.level_db), options)
    loud = _loud_in(levels, spans or [Span(0.0, len(samples) / SAMPLE_RATE)])
    second_run = []
    for gap in between(spans, len(samples) / SAMPLE_RATE):
        if _seconds_above(levels, gap, max(loud - _SPEECH_RANGE, _INAUDIBLE)) >= _SUSPECT_SECONDS:
            gap_spans = spans_with_resets(amplified(samples[gap.slice], _SILERO.level_db), options)
            second_run += [Span(gap.start + each.start, min(gap.start + each.end, gap.end)) for each in gap_spans]
    return sorted([*spans, *second_run])


def _amplified_for_fsmn(samples: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Returns the samples at the level that FSMN-VAD needs.

    It misses speech in noise unless both are loud. Without noise a lower level is enough, at which it takes less music
    for speech.
    """
    if len(levels) < _QUIET_FRAMES:
        return amplified(samples, _FSMN.level_db)
    means = np.convolve(levels, np.full(_QUIET_FRAMES, 1 / _QUIET_FRAMES), mode="valid")
    first = int(means.argmin())
    quietest = samples[first * FRAME_SHIFT : (first + _QUIET_FRAMES) * FRAME_SHIFT]
    below = loud_level(levels) - float(means[first])
    noisy = below < _NOISY_DB and noise_like(quietest)
    return amplified(samples, ENOUGH_DB if noisy else _FSMN.level_db)


def _fsmn_spans(samples: np.ndarray, options: ListeningOptions, device: str) -> list[Span]:
    """Returns the spans found by an FSMN-VAD: in a directory with PyTorch, in a GGUF file with ggml."""
    from workbench.families.voice_activity.fsmn_vad import FsmnVadOptions

    place = options.vad
    if not Path(place).exists():
        raise BadInput(
            f"option vad is {place!r}; expected {', '.join(BUILT_IN)}, or the id, directory or GGUF file of an FSMN-VAD"
        )
    runtime = "pytorch" if Path(place).is_dir() else "gguf"
    # Imported by name, as the runtimes are in a layer above the pipelines.
    open_detector = import_module(str(FAMILIES["fsmn_vad"].cell(runtime).module)).open_detector
    detector: FsmnVad = open_detector(place, device) if runtime == "pytorch" else open_detector(place)
    # FSMN-VAD's default is a schedule for whole minutes: it would cut a conversation at 60 s and leave fragments.
    silence = END_SILENCE_MS if options.end_silence_ms is None else options.end_silence_ms
    return detector.spans(samples, options=FsmnVadOptions(end_silence_ms=silence))


def _chunks(
    samples: np.ndarray, speech: Sequence[Span], levels: np.ndarray, detector: _Detector, longest: float
) -> list[Span]:
    """Returns the spans to transcribe: found speech with the pauses around and between it, where those are quiet.

    Noise that is about as loud as the speech is left out where possible, as a recogniser might write words for it.
    """
    if not speech:
        return []
    seconds, mean = len(samples) / SAMPLE_RATE, _mean_level(levels, speech)
    edges = [0.0, *(edge for span in speech for edge in (span.start, span.end)), seconds]
    gaps = [Span(*edge) for edge in zip(edges[::2], edges[1::2], strict=True)]
    quiet = [gap.seconds <= SHORT_PAUSE_SECONDS or _is_pause(samples, gap, levels, mean, detector) for gap in gaps]
    spans: list[Span] = []
    first = 0
    for last in range(len(speech)):
        if quiet[last + 1] and last + 1 < len(speech):
            continue
        low = gaps[first].start if quiet[first] else speech[first].start
        high = gaps[last + 1].end if quiet[last + 1] else speech[last].end
        wide = widened(speech[first : last + 1], PAD_SECONDS, low, high)
        merged = cap_spans(wide, longest, levels, merge_gap=MERGE_SECONDS)
        spans += joined_short(merged, SHORT_SECONDS, JOIN_SECONDS, longest)
        first = last + 1
    return spans


def _is_pause(samples: np.ndarray, gap: Span, levels: np.ndarray, mean: float, detector: _Detector) -> bool:
    """Returns whether a gap in the speech may be transcribed too; `mean` is the mean level of the speech in dB."""
    level = np.median(levels[_frames(gap)])
    if level < max(mean - max(detector.pause_db, detector.tones_db), _INAUDIBLE):
        return True
    return bool(level < max(mean - detector.pause_db, _INAUDIBLE)) and noise_like(samples[gap.slice])


def _notes(
    detector: str, levels: np.ndarray, speech: Sequence[Span], chunks: Sequence[Span], seconds: float
) -> tuple[str, ...]:
    """Returns notes about audio that was left out."""
    level = _mean_level(levels, speech) if speech else loud_level(levels)
    limit = max(level - _AS_LOUD, _INAUDIBLE)
    loud_seconds = sum(_seconds_above(levels, span, limit) for span in between(chunks, seconds))
    is_notable = loud_seconds >= max(_MUCH_SECONDS, _MUCH_SHARE * sum(span.seconds for span in speech))
    advice = "if words are missing, try --vad none"
    if not speech:
        message = f"{detector} found no speech in the recording"
        return (f"{message}, though {loud_seconds:.0f} s of it are not silent; {advice}" if is_notable else message,)
    if is_notable:
        return (
            f"{detector} left out {loud_seconds:.0f} s that are about as loud as the speech that it found; {advice}",
        )
    return ()


def _frames(span: Span) -> slice:
    """Returns the frames of 10 ms that a span touches."""
    return slice(span.slice.start // FRAME_SHIFT, -(-span.slice.stop // FRAME_SHIFT))


def _mean_level(levels: np.ndarray, spans: Sequence[Span]) -> float:
    """Returns the level of the mean power within the spans, in dB."""
    power = 10 ** (np.concatenate([levels[_frames(span)] for span in spans]) / 10)
    return float(10 * np.log10(np.mean(power)))


def _loud_in(levels: np.ndarray, spans: Sequence[Span]) -> float:
    return loud_level(np.concatenate([levels[_frames(span)] for span in spans]))


def _seconds_above(levels: np.ndarray, span: Span, limit: float) -> float:
    """Returns the seconds of a span in which the level is above the limit in dB."""
    return float(np.count_nonzero(levels[_frames(span)] > limit)) * FRAME_SHIFT / SAMPLE_RATE
