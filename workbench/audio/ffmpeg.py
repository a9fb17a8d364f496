"""Sound out of files that only ffmpeg reads (m4a, wma, video ...), streamed from its process as float32 blocks.

The file is given to ffmpeg by name with a list of the containers it may be, because some of the formats ffmpeg knows
are lists of *other* files to open, and what a user uploads must not decide which files of this machine are read. This
file does not resample and does not mix channels.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from workbench.core.errors import BadInput

# Containers that hold their own sound. Playlists (hls, dash, concat, sdp ...) and devices are left out on purpose.
_CONTAINERS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,asf_o,ast,au,avi,bfstm,brstm,caf,dsf,dts,dtshd,dv,eac3,ea,flac,flv,gsm,ircam,"
    "iff,latm,live_flv,loas,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mlp,mp3,mpc,mpc8,mpeg,mpegts,mpegvideo,mxf,nsv,nut,ogg,"
    "oma,qcp,rm,rso,shorten,sln,smjpeg,sox,spdif,swf,tak,truehd,tta,voc,vqf,w64,wav,wc3movie,wsd,wtv,wv,xa,xwma"
)
_BLOCK_BYTES = 1 << 20
_FAULT = r"error|invalid|fail|could not|cannot|unable|unsupported|unknown|not found|no such|matches no|does not"


@dataclass(frozen=True)
class FfmpegStream:
    """Decoded sound as it arrives: `blocks` yields float32 [samples, channels] and ends with the sound.

    `close` ends the process, whether the blocks were used or not.
    """

    rate: int
    channels: int
    format: str
    blocks: Iterator[np.ndarray]
    close: Callable[[], None]


def ffmpeg_path() -> str | None:
    """The ffmpeg program of this machine, or None."""
    return shutil.which("ffmpeg")


def decode(program: str, path: Path, notes: list[str]) -> FfmpegStream:
    """Start decoding the first audio stream of a file.

    A stream that breaks off after some sound was decoded ends there and adds a sentence to `notes`; `BadInput` carries
    ffmpeg's own words when nothing could be decoded.
    """
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the stream, later than this function
    command = [program, "-hide_banner", "-nostdin", "-nostats", "-protocol_whitelist", "file,pipe", "-format_whitelist"]
    command += [
        _CONTAINERS,
        "-i",
        f"file:{path.absolute()}",
        "-map",
        "0:a:0",
        "-map_metadata",
        "-1",
        "-fflags",
        "+bitexact",
    ]
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
    return FfmpegStream(rate, channels, _codec(errors), _blocks(process, output, channels, errors, notes), close)


def _wav_header(stream: IO[bytes]) -> tuple[int, int] | None:
    """Sample rate and channels of the WAV on `stream`, read up to its first sample; None if there is none."""
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
    process: subprocess.Popen[bytes], stream: IO[bytes], channels: int, errors: IO[bytes], notes: list[str]
) -> Iterator[np.ndarray]:
    """The sound that follows the header."""
    width = 4 * channels
    got = 0
    while chunk := stream.read(_BLOCK_BYTES - _BLOCK_BYTES % width):
        whole = len(chunk) - len(chunk) % width
        got += whole
        yield np.frombuffer(chunk[:whole], dtype="<f4").reshape(-1, channels)
    if process.wait() != 0:
        if got == 0:
            raise BadInput(_last_words(errors))
        notes.append(f"ffmpeg stopped before the end ({_last_words(errors)}); what it had decoded was read")


def _report(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read().decode("utf-8", "replace")


def _last_words(errors: IO[bytes]) -> str:
    """The last line of ffmpeg's report that names a fault, without the file's path and the address of the part."""
    lines = [line.strip() for line in _report(errors).splitlines() if line.strip() not in ("", "Conversion failed!")]
    faults = [line for line in lines if re.search(_FAULT, line, re.IGNORECASE)] or lines
    return re.sub(r"^(file:.*?: |\[.*?\] )", "", faults[-1]).rstrip(".") if faults else "it printed no reason"


def _codec(errors: IO[bytes]) -> str:
    """Container and codec as ffmpeg names them, such as "MOV aac"."""
    report = _report(errors)
    container = re.search(r"Input #0, (\w+)", report)
    codec = re.search(r"Stream #0:.*?Audio: (\w+)", report)
    return f"{container[1].upper() if container else 'ffmpeg'} {codec[1] if codec else 'audio'}"
