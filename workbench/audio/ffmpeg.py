"""Decodes files that only ffmpeg reads (m4a, wma, video ...), streamed from its process as float32 blocks.

ffmpeg gets the file by name with a list of allowed containers. Some formats that ffmpeg knows are lists of *other*
files to open, and an upload must not decide which files of this machine are read. This file does not resample and does
not mix channels.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from workbench.audio import ogg
from workbench.audio.refused import NO_SOUND
from workbench.audio.stated_size import sign_of_cut
from workbench.core.errors import BadInput

# Containers that hold their own audio. Playlists (hls, dash, concat, sdp ...) and devices are left out on purpose.
_CONTAINERS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,asf_o,ast,au,avi,bfstm,brstm,caf,dsf,dts,dtshd,dv,eac3,ea,flac,flv,gsm,ircam,"
    "iff,latm,live_flv,loas,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mlp,mp3,mpc,mpc8,mpeg,mpegts,mpegvideo,mxf,nsv,nut,ogg,"
    "oma,qcp,rm,rso,shorten,sln,smjpeg,sox,spdif,swf,tak,truehd,tta,voc,vqf,w64,wav,wc3movie,wsd,wtv,wv,xa,xwma"
)
_BLOCK_BYTES = 1 << 20
_PICTURES = re.compile(r"Stream #0:.*?: Video: (?!.*attached pic)")
_FIRST_FRAME = re.compile(r"pts_time:([0-9.]+)")
_LATE_SECONDS = (0.1, 3600.0)  # less is the delay of an encoder, and more is damage
_DAMAGE = re.compile(r"ended prematurely|partial file|corrupt|error", re.IGNORECASE)
_PACKETS = ((188, 0), (192, 4), (204, 0))  # of MPEG transport streams: bytes of a packet, and where _SYNC stands
_SYNC = b"G"
_HEAD = re.compile(r"(In|Out)put #")  # lines with the name of a file
_PREFIXES = re.compile(r"^(file:.*?: |(\[.*?\] )+)")  # the file, or the components with their addresses
_FAULT = r"error|invalid|fail|could not|cannot|unable|unsupported|unknown|not found|no such|matches no|does not"


@dataclass(frozen=True)
class FfmpegStream:
    """A running decoder: `blocks` yields float32 [samples, channels] and ends with the audio.

    `close` ends the process, whether the blocks were used or not.
    """

    rate: int
    channels: int
    format: str
    blocks: Iterator[np.ndarray]
    close: Callable[[], None]


def ffmpeg_path() -> str | None:
    """Returns the path of the ffmpeg program on this machine, or None."""
    return shutil.which("ffmpeg")


def decode(program: str, path: Path, notes: list[str]) -> FfmpegStream:
    """Starts to decode the first audio stream of a file and returns the stream.

    If the sound begins after the pictures, silence stands before it, so that its times are those of the film.
    If a stream breaks off after some audio was decoded, the blocks end there and `notes` gets a sentence. Raises
    `BadInput` with ffmpeg's own message if nothing could be decoded.
    """
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the stream, later than this function
    command = [*_input(program, path), "-map", "0:a:0", "-map_metadata", "-1", "-fflags", "+bitexact"]
    command += ["-c:a", "pcm_f32le", "-f", "wav", "pipe:1"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None
    output = process.stdout

    def close() -> None:
        output.close()
        if process.poll() is None:
            process.kill()
        process.wait()
        errors.close()

    header = _wav_header(output)
    if header is None:
        process.wait()
        reason = _last_words(errors)
        close()
        raise BadInput(reason)
    rate, channels = header
    report = _report(errors)
    late = _seconds_before_sound(program, path) if _PICTURES.search(report) else 0.0
    if late:
        notes.append(f"the sound begins {late:.1f} s after the pictures, so the times are those of the film")
    blocks = chain(_silence(round(late * rate), channels), _blocks(process, output, channels, errors, path, notes))
    return FfmpegStream(rate, channels, _codec(report), blocks, close)


def _input(program: str, path: Path) -> list[str]:
    """Returns the beginning of a command that reads a file, and no other one."""
    allowed = ["-protocol_whitelist", "file,pipe", "-format_whitelist", _CONTAINERS]
    return [program, "-hide_banner", "-nostdin", "-nostats", *allowed, "-i", f"file:{path.absolute()}"]


def _seconds_before_sound(program: str, path: Path) -> float:
    """Returns how long the pictures of a film run before its first audio stream begins; 0 for a moment or no time."""
    command = [*_input(program, path), "-map", "0:a:0", "-map", "0:v:0", "-c:v", "copy", "-frames:a", "1"]
    command += ["-frames:v", "1", "-af", "ashowinfo", "-f", "null", "-"]
    report = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).stderr.decode("utf-8", "replace")
    found = _FIRST_FRAME.search(report)
    seconds = float(found[1]) if found else 0.0
    return seconds if _LATE_SECONDS[0] <= seconds <= _LATE_SECONDS[1] else 0.0


def _silence(samples: int, channels: int) -> Iterator[np.ndarray]:
    size = _BLOCK_BYTES // (4 * channels)
    for start in range(0, samples, size):
        yield np.zeros((min(size, samples - start), channels), dtype=np.float32)


def _wav_header(stream: IO[bytes]) -> tuple[int, int] | None:
    """Returns the sample rate and channels of the WAV on `stream`, read up to its first sample; None for no WAV."""
    if len(stream.read(12)) < 12:
        return None
    rate, channels = 0, 0
    while len(head := stream.read(8)) == 8:
        name, size = head[:4], int.from_bytes(head[4:], "little")
        if name == b"data":
            return (rate, channels) if rate and channels else None
        content = stream.read(size + size % 2)
        if name == b"fmt ":
            channels, rate = int.from_bytes(content[2:4], "little"), int.from_bytes(content[4:8], "little")
    return None


def _blocks(
    process: subprocess.Popen[bytes], stream: IO[bytes], channels: int, errors: IO[bytes], path: Path, notes: list[str]
) -> Iterator[np.ndarray]:
    """Yields the audio after the header, float32 [samples, channels]."""
    width = 4 * channels
    got = 0
    while chunk := stream.read(_BLOCK_BYTES - _BLOCK_BYTES % width):
        whole_frames = len(chunk) - len(chunk) % width
        got += whole_frames
        yield np.frombuffer(chunk[:whole_frames], dtype="<f4").reshape(-1, channels)
    if process.wait() != 0:
        if got == 0:
            raise BadInput(_last_words(errors))
        notes.append(f"ffmpeg stopped before the end ({_last_words(errors)}); what it had decoded was read")
    elif sign := _sign_of_damage(errors) or _cut_packet(path) or ogg.sign_of_damage(path) or sign_of_cut(path):
        notes.append(f"the file is cut or damaged ({sign}); what ffmpeg decoded was read")


def _report(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read().decode("utf-8", "replace")


def _last_words(errors: IO[bytes]) -> str:
    """Returns the line of ffmpeg's report that best names a fault, without file path and component addresses."""
    lines = [line.strip() for line in _report(errors).splitlines() if line.strip() not in ("", "Conversion failed!")]
    faults = [line for line in lines if NO_SOUND in line]  # newer versions add that they fail for this reason
    faults = faults or [line for line in lines if re.search(_FAULT, line, re.IGNORECASE)] or lines
    return _one_sentence(faults[-1]) if faults else "it printed no reason"


def _sign_of_damage(errors: IO[bytes]) -> str:
    """Returns the last line of the report of a decoder that went on although a file is damaged; empty for a whole file.

    Lines that begin with a space are the file's own metadata.
    """
    lines = [line for line in _report(errors).splitlines() if line and line[0] != " " and not _HEAD.match(line)]
    return next((_one_sentence(line) for line in reversed(lines) if _DAMAGE.search(line)), "")


def _cut_packet(path: Path) -> str:
    """Returns that the last packet of an MPEG transport stream is cut; empty for a whole one, and for other files.

    ffmpeg drops such a packet without a word. A stream states no length, so a cut between two packets leaves no sign.
    """
    with path.open("rb") as file:
        head = file.read(1024)
    length = next((length for length, at in _PACKETS if head[at::length].startswith(_SYNC * 4)), 0)
    return "the last packet is cut" if length and path.stat().st_size % length else ""


def _one_sentence(line: str) -> str:
    return _PREFIXES.sub("", line).rstrip(".")


def _codec(report: str) -> str:
    """Returns the container and codec as ffmpeg names them, such as "MOV aac"."""
    container = re.search(r"Input #0, (\w+)", report)
    codec = re.search(r"Stream #0:.*?Audio: (\w+)", report)
    return f"{container[1].upper() if container else 'ffmpeg'} {codec[1] if codec else 'audio'}"
