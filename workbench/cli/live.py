"""`workbench transcribe --live`: text while somebody speaks, from a microphone or raw samples on standard input."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput, Unavailable
from workbench.live.endpointing import EndpointingLimits
from workbench.live.transcription import (
    Failed,
    FinalText,
    LiveEvent,
    LiveTranscription,
    PartialText,
    SpeechStarted,
    whole_transcript,
)
from workbench.registry.handle import OpenSession
from workbench.session.values import Transcript
from workbench.text.exports import find_format

BLOCK_SECONDS = 0.1
RATES = (4000, 384_000)  # Hz
# Of raw samples: numpy's type, and what makes full scale 1.
FORMATS: Mapping[str, tuple[str, float]] = {"s16le": ("<i2", 1 / 32768), "f32le": ("<f4", 1.0)}
RAW_SAMPLES: Mapping[str, Any] = {
    "rate": SAMPLE_RATE,
    "pcm": "s16le",
    "channels": 1,
}  # flags of raw samples, by default
SHOWN_AT_ONCE = ("text", "json")  # formats of the output that need not wait for the end


def add_live(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of live transcription."""
    group = parser.add_argument_group(
        "live", "With --live, leave out AUDIO to use the microphone, or give - for raw samples on standard input."
    )
    group.add_argument("--live", action="store_true", help="write the text while somebody speaks")
    group.add_argument("--rate", type=int, metavar="HZ", help="sample rate of raw samples (default: 16000)")
    group.add_argument("--pcm", choices=tuple(FORMATS), help="format of raw samples (default: s16le)")
    group.add_argument("--channels", type=int, metavar="N", help="number of channels of raw samples (default: 1)")


def check_live(parsed: argparse.Namespace) -> None:
    """Raises `BadInput` for flags that do not fit together."""
    if not parsed.live and not parsed.audio:
        raise BadInput("there is no recording; expected AUDIO, or --live")
    if parsed.live and parsed.audio not in ([], ["-"]):
        raise BadInput("--live takes no AUDIO; leave it out, or give - for raw samples on standard input")
    raw_flags = [name for name in RAW_SAMPLES if getattr(parsed, name) is not None]
    if raw_flags and not (parsed.live and parsed.audio):
        raise BadInput(f"--{raw_flags[0]} describes raw samples on standard input; expected --live and - with it")
    for name in RAW_SAMPLES:
        setattr(parsed, name, RAW_SAMPLES[name] if getattr(parsed, name) is None else getattr(parsed, name))
    if not RATES[0] <= parsed.rate <= RATES[1]:
        raise BadInput(f"--rate is {parsed.rate}; expected {RATES[0]} to {RATES[1]} Hz")
    if not 1 <= parsed.channels <= 32:
        raise BadInput(f"--channels is {parsed.channels}; expected 1 to 32")


def transcribe_live(parsed: argparse.Namespace, session: OpenSession, options: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines to print: each segment as soon as it is final, or a whole file at the end."""
    writer = find_format(parsed.format)
    line, events = ProgressLine(), list[LiveEvent]()
    finished: list[Transcript] = []

    def transcribe(samples: np.ndarray) -> Transcript:
        return session.transcribe((samples, SAMPLE_RATE), **options)

    live = LiveTranscription(transcribe, events.append, EndpointingLimits())
    try:
        with contextlib.closing(_sound(parsed)) as sound:
            for samples in _until_interrupt(sound):
                live.feed(samples)
                yield from _printed(events, line, finished, parsed.format)
        live.finish()
        yield from _printed(events, line, finished, parsed.format)
        transcript = whole_transcript(finished, live.seconds)
        if parsed.format not in SHOWN_AT_ONCE:
            yield writer.write([] if transcript is None else transcript)  # without speech, a file with its header alone
    finally:
        line.clear()
        live.close()


def _printed(events: list[LiveEvent], line: ProgressLine, finished: list[Transcript], form: str) -> Iterator[str]:
    while events:
        event = events.pop(0)
        if isinstance(event, PartialText):
            line.show("", event.text)
        elif isinstance(event, SpeechStarted):
            line.show("listening")
        elif isinstance(event, Failed):
            line.clear()
            raise event.error
        elif isinstance(event, FinalText):
            line.clear()
            if form not in SHOWN_AT_ONCE:
                finished.append(event.transcript)
            elif event.transcript.text:
                yield f"{event.transcript.text}\n" if form == "text" else f"{event.transcript.to_json()}\n"


def _until_interrupt(sound: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Yields the sound; an interrupt ends it, so that the speech before it is still transcribed."""
    with contextlib.suppress(KeyboardInterrupt):
        yield from sound


def _sound(parsed: argparse.Namespace) -> Generator[np.ndarray, None, None]:
    return _standard_input(parsed.rate, parsed.pcm, parsed.channels) if parsed.audio == ["-"] else _microphone()


def _standard_input(rate: int, form: str, channels: int) -> Generator[np.ndarray, None, None]:
    """Yields the raw samples on standard input, mono at 16 kHz."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise BadInput(
            "standard input has no sound; expected raw samples, as in: "
            "arecord -t raw -f S16_LE -r 16000 | workbench transcribe --live - --model M"
        )
    resample: Callable[..., np.ndarray] = lambda samples, last=False: samples  # noqa: E731
    if rate != SAMPLE_RATE:
        import soxr

        resample = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="VHQ").resample_chunk
    kind, scale = FORMATS[form]
    frame = np.dtype(kind).itemsize * channels
    remainder = b""
    stdin: Any = sys.stdin.buffer
    while content := stdin.read1(max(frame, round(rate * BLOCK_SECONDS) * frame)):
        content = remainder + content
        whole_frames = len(content) // frame * frame
        remainder = content[whole_frames:]
        samples = (
            np.frombuffer(content[:whole_frames], kind).reshape(-1, channels).mean(axis=1, dtype=np.float64) * scale
        )
        if not np.isfinite(samples).all():
            raise BadInput(f"the samples on standard input are not finite numbers; are they {form}?")
        yield resample(samples.astype(np.float32))
    yield resample(np.empty(0, np.float32), last=True)


def _microphone() -> Generator[np.ndarray, None, None]:
    """Yields the samples of this machine's microphone, mono at 16 kHz."""
    try:
        sounddevice = importlib.import_module("sounddevice")
    except (ImportError, OSError):  # the package, or the library that it calls
        raise Unavailable(
            "the microphone needs the package sounddevice (pip install sounddevice); or send raw samples: "
            "arecord -t raw -f S16_LE -r 16000 | workbench transcribe --live - --model M"
        ) from None
    block = round(SAMPLE_RATE * BLOCK_SECONDS)
    try:
        with sounddevice.InputStream(samplerate=SAMPLE_RATE, channels=1, dtype="float32", blocksize=block) as stream:
            while True:
                yield stream.read(block)[0][:, 0]
    except sounddevice.PortAudioError as error:
        raise Unavailable(f"the microphone cannot be opened: {error}") from error
