"""Reads any recording as 16 kHz mono float32, and writes int16 WAV files for playback.

libsndfile decodes; files that it refuses go to ffmpeg, if that is installed. Audio is processed in blocks, so that a
recording of hours takes little more memory than its own size. A damaged file that holds audio is read as far as
possible, with a note; a file without audio raises `BadInput`. Reading never rescales or clips samples.

This file knows nothing of features, models or segments.
"""

import hashlib
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from workbench.audio import ffmpeg, libsndfile
from workbench.audio.constants import INT16_MAX, INT16_MIN, INT16_SCALE, SAMPLE_RATE
from workbench.audio.in_memory import INTEGER_SCALE, samples_and_rate
from workbench.audio.mixing import Mixer, resampler
from workbench.audio.refused import (
    check_path,
    check_rate,
    head_of,
    is_address,
    is_known,
    is_text,
    may_be_mpeg,
    no_samples_error,
    not_sound_error,
)
from workbench.audio.unread_rest import note_on_rest
from workbench.audio.wav_header import WavLayout, wav_layout
from workbench.core.errors import BadInput
from workbench.core.paths import status_of
from workbench.core.phrases import counted
from workbench.core.visitors import current_work
from workbench.formats.other_files import other_kind

if TYPE_CHECKING:
    import soundfile

Source = str | os.PathLike[str] | tuple[Any, int] | Mapping[str, Any]

MINUTES_VARIABLE = "WORKBENCH_AUDIO_MINUTES"  # of the environment: the longest recording that is read

LOUDEST = 1e12  # of a sample, where full scale is 1; the power of louder ones is infinite in float32


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording as every part of the workbench receives it."""

    samples: np.ndarray  # float32 [samples], mono at 16 kHz; full scale is 1, which float files may exceed
    sample_rate: int  # always 16000

    source_rate: int  # Hz, of the file or array that was read
    source_channels: int
    source_format: str  # such as "WAV PCM_24" or "array int16"

    digest: str  # first 16 hex digits of the SHA-256 of the samples; identifies the recording in traces and caches
    notes: tuple[str, ...] = ()  # remarks for the user about the reading, one sentence each

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


@dataclass(frozen=True)
class _Decoded:
    """Audio that is being decoded, as float32 blocks [samples, channels] at the source's own rate."""

    blocks: Iterator[np.ndarray]
    rate: int
    channels: int
    format: str
    notes: list[str]
    close: Callable[[], None]  # closes the file or process behind the blocks


def read(source: Source) -> Recording:
    """Reads a recording from a path, or from `(samples, sample_rate)` with samples [n] or [n, channels].

    The audio of a row in Hugging Face's datasets is such a pair, too (`workbench.audio.in_memory`).
    Averages the channels. Scales integer samples to full scale 1 by their type; takes floats unchanged. Raises
    `BadInput`, naming the file, if the source holds no usable audio, or if its channels cancel each other.
    """
    decoded, name = _decode(source)
    try:
        return _finish(decoded, name)
    finally:
        decoded.close()


def read_as_recorded(source: Source) -> tuple[np.ndarray, int]:
    """Returns the samples of a recording at its own rate, float32 [n, channels], and that rate in Hz; errors as `read`.

    Nothing is averaged or resampled. Raises `BadInput` if it is longer than `read` takes.
    """
    decoded, name = _decode(source)
    try:
        longest, blocks, count = _longest_minutes() * 60 * decoded.rate, list[np.ndarray](), 0
        for block in decoded.blocks:
            blocks.append(block)
            count += len(block)
            if count > longest:
                raise BadInput(f"{name} is longer than {longest / decoded.rate / 60:g} minutes")
        if not count:
            raise no_samples_error(name)
        return np.concatenate(blocks), decoded.rate
    finally:
        decoded.close()


def _decode(source: Source) -> tuple[_Decoded, str]:
    """Returns the blocks of a source, and its name in messages."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(check_path(source))
        return _decode_file(path), path.name or str(path)
    return _decode_array(source), "the array"


def samples_to_int16(samples: np.ndarray) -> np.ndarray:
    """Returns samples with full scale 1 as int16 of the same shape: rounded, clipped, never normalised."""
    scaled: np.ndarray = np.multiply(samples, INT16_SCALE, dtype=np.float32)
    if not np.isfinite(scaled).all():
        raise BadInput("samples that are not finite numbers have no int16 value")
    np.rint(scaled, out=scaled)
    np.clip(scaled, INT16_MIN, INT16_MAX, out=scaled)
    return scaled.astype(np.int16)


def write_wav(path: str | os.PathLike[str], samples: np.ndarray) -> None:
    """Writes 16 kHz mono `samples` [n] as 16-bit WAV, clipped."""
    import soundfile

    if samples.ndim != 1:
        raise BadInput(f"mono samples of shape (n,) are expected to write a WAV file, not shape {samples.shape}")
    if not len(samples):
        raise BadInput("no samples to write to a WAV file")
    soundfile.write(os.fspath(path), samples_to_int16(samples), SAMPLE_RATE, subtype="PCM_16", format="WAV")


def _finish(decoded: _Decoded, name: str) -> Recording:
    """Mixes, resamples and collects the blocks of one source."""
    check_rate(name, decoded.rate)
    mix, resample = Mixer(), resampler(decoded.rate)
    longest = _longest_minutes() * 60 * decoded.rate  # counted while it is decoded: a header may lie
    collected = bytearray()  # grows in place, so the recording is in memory only once
    read_so_far = 0
    not_finite, first_not_finite = 0, 0
    for block in decoded.blocks:
        if (work := current_work()) is not None:
            work.check()  # a small file may hold hours of samples
        finite = (np.abs(block) < LOUDEST).all(axis=1)
        if not finite.all():
            first_not_finite = first_not_finite if not_finite else read_so_far + int(np.argmin(finite))
            not_finite += int(np.count_nonzero(~finite))
        read_so_far += len(block)
        if read_so_far > longest:
            raise BadInput(
                f"{name} is longer than {longest / decoded.rate / 60:g} minutes, the longest recording that is taken "
                "here; cut it into parts"
            )
        if not not_finite:
            collected += resample(mix(block), False).data
    if not_finite:
        at = f"sample {first_not_finite}, {first_not_finite / decoded.rate:.3f} s"
        raise BadInput(
            f"{name} has {counted(not_finite, 'sample')} that {'is' if not_finite == 1 else 'are'} not sound (NaN, "
            f"infinity, or beyond {LOUDEST:g} times full scale), the first at {at}"
        )
    if read_so_far == 0:
        raise no_samples_error(name)
    mix.check(name)
    collected += resample(np.empty(0, dtype=np.float32), True).data
    if not collected:
        raise BadInput(
            f"{name} holds {counted(read_so_far, 'sample')} at {decoded.rate} Hz, less than one sample at "
            f"{SAMPLE_RATE} Hz; expected a longer recording"
        )
    samples = np.frombuffer(collected, dtype=np.float32)
    digest = hashlib.sha256(collected).hexdigest()[:16]
    return Recording(samples, SAMPLE_RATE, decoded.rate, decoded.channels, decoded.format, digest, tuple(decoded.notes))


def _longest_minutes() -> float:
    """Returns $WORKBENCH_AUDIO_MINUTES, which a server sets for itself and its sessions; without it, no limit."""
    try:
        return float(os.environ.get(MINUTES_VARIABLE) or math.inf)
    except ValueError:
        raise BadInput(
            f"{MINUTES_VARIABLE} is {os.environ[MINUTES_VARIABLE]!r:.40}; expected a number of minutes"
        ) from None


def _decode_array(source: Any) -> _Decoded:
    """Returns a recording in memory as blocks."""
    array, rate = samples_and_rate(source)
    kind = array.dtype.name
    columns = array[:, np.newaxis] if array.ndim == 1 else array

    def blocks() -> Iterator[np.ndarray]:
        scale, silence = INTEGER_SCALE.get(kind, (1, 0))
        for start in range(0, len(columns), libsndfile.BLOCK):
            block = columns[start : start + libsndfile.BLOCK]
            if kind in INTEGER_SCALE:
                yield ((block.astype(np.float64) - silence) / scale).astype(np.float32)
            else:
                with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite, which `_finish` refuses
                    yield block.astype(np.float32)

    return _Decoded(blocks(), rate, columns.shape[1], f"array {kind}", [], lambda: None)


def opened(path: Path) -> "tuple[soundfile.SoundFile | None, list[str]]":
    """Returns a file opened by libsndfile for reading at any place, and remarks about it; None if it cannot be read so.

    A WAV file with a wrong length in its header has its true length. Raises `BadInput`, naming the file, if it cannot
    be opened or is known to hold no sound.
    """
    _, head, layout = _checked(path)
    notes = _notes_on_rest(path)
    file = libsndfile.open_file(path, layout, may_be_mpeg(path, head), notes)
    return None if file is not None and file.format == libsndfile.HEADERLESS else file, notes


def opened_stream(stream: BinaryIO) -> "soundfile.SoundFile | None":
    """Returns the sound in an open file, with its true length as in `opened`; None if libsndfile refuses it."""
    layout = wav_layout(stream)
    stream.seek(0)
    return libsndfile.open_file(stream, layout, False, [])


def blocks_of(path: Path) -> tuple[Iterator[np.ndarray], int, Callable[[], None]]:
    """Returns the float32 blocks [samples, channels] of a file, its rate and what closes it; errors as `read`."""
    decoded = _decode_file(path)
    return decoded.blocks, decoded.rate, decoded.close


def _decode_file(path: Path) -> _Decoded:
    """Returns the blocks of a file, decoded by libsndfile or else by ffmpeg."""
    name, head, layout = _checked(path)
    decoded = _decode_libsndfile(path, name, head, layout)
    decoded.notes.extend(_notes_on_rest(path))
    return decoded


def _notes_on_rest(path: Path) -> list[str]:
    return [note] if (note := note_on_rest(path)) else []


def _checked(path: Path) -> tuple[str, bytes, WavLayout | None]:
    """Returns the name, the first bytes and the layout (of a WAV) of a file that may hold sound."""
    name = path.name or str(path)
    try:
        status = status_of(path)
        if status is None:
            hint = "; addresses are not opened: download the file, and give its path" if is_address(path) else ""
            raise BadInput(f"there is no file {name:.200}{hint}")
        if stat.S_ISDIR(status.st_mode):
            raise BadInput(f"{name} is a directory, and one sound file is expected")
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{name} is a device or a pipe; expected a sound file, or - for what standard input holds")
        if status.st_size == 0:
            raise BadInput(f"{name} is empty (0 bytes), and a sound file is expected")
        head = head_of(path)
        with path.open("rb") as file:
            layout = wav_layout(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"{name:.200} cannot be opened: {reason}") from error
    if layout is not None and layout.present == 0:
        raise BadInput(f"{name} is the header of a WAV file with no samples after it")
    if other_kind(head):
        raise not_sound_error(name, head)
    return name, head, layout


def _decode_libsndfile(path: Path, name: str, head: bytes, layout: WavLayout | None) -> _Decoded:
    notes: list[str] = []
    file = libsndfile.open_file(path, layout, may_be_mpeg(path, head), notes)
    if file is None:
        return _decode_ffmpeg(path, name, head)
    if file.format == libsndfile.HEADERLESS:
        if is_known(head):
            file.close()
            if is_text(head):
                raise not_sound_error(name, head)  # ffmpeg goes by the ending of the name, too
            return _decode_ffmpeg(path, name, head)
        notes.append(
            f"it has no header; by the ending of its name, it was read as {file.subtype} at {file.samplerate} Hz"
        )
    text = f"{file.format} {file.subtype}"
    reopen = partial(libsndfile.open_file, path, layout, may_be_mpeg(path, head), [])
    return _Decoded(
        libsndfile.decoded_blocks(file, reopen, path, head, notes),
        file.samplerate,
        file.channels,
        text,
        notes,
        file.close,
    )


def _decode_ffmpeg(path: Path, name: str, head: bytes) -> _Decoded:
    program = ffmpeg.ffmpeg_path()
    if program is None:
        raise not_sound_error(name, head, ffmpeg_asked=False)
    notes: list[str] = []
    try:
        stream = ffmpeg.decode(program, path, notes)
    except BadInput as error:
        raise not_sound_error(name, head, report=str(error)) from error

    def blocks() -> Iterator[np.ndarray]:
        try:
            yield from stream.blocks
        except BadInput as error:
            raise not_sound_error(name, head) from error

    return _Decoded(blocks(), stream.rate, stream.channels, stream.format, notes, stream.close)
