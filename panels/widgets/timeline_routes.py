"""The addresses of the timeline: what is known of a recording, tiles of its pictures, its samples, its sound.

A recording is found by a key that only its users have. All errors are `{"error": sentence}`. The sound is a WAV file
that is made while it is read. So a player can begin anywhere in a long recording of any format, and its times are those
of the pictures.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from panels.running.answers import answered
from panels.widgets.timeline import Opened, Timelines
from workbench.audio.overview import COARSEST, FINEST, MEL_COLUMNS, PEAK_COLUMNS, Overview
from workbench.core.errors import BadInput

BYTES = "application/octet-stream"
MAX_SENT = 1 << 16  # bytes of a request's body, which should be empty
MAX_SAMPLES = 1 << 17  # samples of one request
HEADER = 44  # bytes before the samples of a WAV file
PIECE = 1 << 17  # samples of the sound that are decoded at a time
CACHED_FOR_A_DAY = "private, max-age=86400"
LATEST = 1 << 40  # tile, far behind the end of any recording
TELL_AFTER = 0.25  # seconds until the server answers that a recording is not open yet


def timeline_routes(timelines: Timelines) -> list[BaseRoute]:
    """Returns the routes."""
    work: dict[str, Callable[[Opened, Request], Response]] = {
        "about": _about,
        "peaks/{level}/{tile:int}": _peaks,
        "mels/{level}/{tile:int}": _mels,
        "samples/{first:int}/{count:int}": _samples,
    }

    def wrapped(function: Callable[[Opened, Request], Response]) -> Callable[[bytes, Request], Response]:
        return lambda body, request: function(timelines.of(request.path_params["key"]), request)

    async def sound(request: Request) -> Response:
        return await answered(wrapped(_sound), MAX_SENT, request)

    found: list[BaseRoute] = [
        Route(f"/timeline/{{key}}/{path}", partial(answered, wrapped(each), MAX_SENT), methods=["GET"])
        for path, each in work.items()
    ]
    return [
        *found,
        Route("/timeline/{key}/sound.wav", sound, methods=["GET"]),
    ]


def _about(opened: Opened, request: Request) -> Response:
    if not opened.ready.wait(TELL_AFTER):
        return JSONResponse({"ready": False}, headers={"Cache-Control": "no-store"})
    if opened.overview is None:  # status 200: a browser writes other ones to its console
        return JSONResponse({"error": opened.error}, headers={"Cache-Control": "no-store"})
    overview = opened.overview
    low, high = overview.contrast
    description = {
        "ready": True,
        "seconds": overview.seconds,
        "rate": overview.track.rate,
        "frames": overview.frames,
        "share": round(overview.share, 4),
        "finished": overview.finished,
        "peak": overview.peak,
        "contrast": [low, high],
        "columns": {"peaks": PEAK_COLUMNS, "mels": MEL_COLUMNS},
        "finest": FINEST,
        "notes": list(overview.track.notes),
    }
    return JSONResponse(description, headers={"Cache-Control": "no-store"})


def _peaks(opened: Opened, request: Request) -> Response:
    overview, level, tile = _requested_tile(opened, request, FINEST)
    return _tile(overview, overview.peaks(level, tile).astype("<i2"))


def _mels(opened: Opened, request: Request) -> Response:
    overview, level, tile = _requested_tile(opened, request, 0)
    return _tile(overview, overview.mels(level, tile))


def _samples(opened: Opened, request: Request) -> Response:
    first, count = request.path_params["first"], request.path_params["count"]
    if count > MAX_SAMPLES:
        raise BadInput(f"{count} samples were requested; expected at most {MAX_SAMPLES}")
    overview = opened.found()
    return _tile(overview, overview.track.read(min(first, LATEST), count).astype("<i2"))


def _requested_tile(opened: Opened, request: Request, finest: int) -> tuple[Overview, int, int]:
    level, tile = request.path_params["level"], request.path_params["tile"]
    if not re.fullmatch(r"-?\d{1,3}", level) or not finest <= int(level) <= COARSEST or tile > LATEST:
        raise BadInput(f"there is no tile {level:.20}/{tile}; expected levels from {finest} to {COARSEST}")
    return opened.found(), int(level), tile


def _tile(overview: Overview, values: np.ndarray) -> Response:
    """Returns the values; the browser keeps them once the whole recording is known."""
    caching = CACHED_FOR_A_DAY if overview.finished else "no-store"
    return Response(values.tobytes(), media_type=BYTES, headers={"Cache-Control": caching})


def _sound(opened: Opened, request: Request) -> Response:
    """Returns the recording, or its stretch `from` to `to` in seconds, as 16-bit mono WAV; or bytes of it."""
    overview = opened.found()
    track = overview.track
    begin, end = _stretch(request, overview)
    length = HEADER + 2 * (end - begin)
    span = _range(request.headers.get("range", ""), length)
    if span is None:
        return Response(status_code=416, headers={"Content-Range": f"bytes */{length}"})
    first, last = span
    headers = {"Accept-Ranges": "bytes", "Content-Length": str(last + 1 - first), "Cache-Control": "private, no-cache"}
    if "range" in request.headers:
        headers["Content-Range"] = f"bytes {first}-{last}/{length}"
    if "save" in request.query_params:
        stem = Path(opened.path).stem
        part = "" if end - begin == track.frames else f"-{begin / track.rate:.2f}-{end / track.rate:.2f}"
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(f'{stem}{part}.wav')}"
    status = 206 if "range" in request.headers else 200

    async def content() -> AsyncIterator[bytes]:
        at = first
        if at < HEADER:
            head = _wav_header(track.rate, end - begin)
            yield head[at : last + 1]
            at = min(HEADER, last + 1)
        while at <= last:
            place, odd = divmod(at - HEADER, 2)
            count = min(PIECE, end - begin - place)
            samples = await asyncio.to_thread(track.read, begin + place, count)
            # If the file has less sound than it states, silence fills the rest, so that the length stays as stated.
            data = samples.astype("<i2").tobytes().ljust(2 * count, b"\0")[odd : odd + last + 1 - at]
            yield data
            at += len(data)

    return StreamingResponse(content(), status, headers, "audio/wav")


def _stretch(request: Request, overview: Overview) -> tuple[int, int]:
    """Returns the first sample that is asked for and the one after the last; by default the whole recording."""
    rate, frames = overview.track.rate, overview.track.frames
    try:
        begin = float(request.query_params.get("from", 0.0))
        end = float(request.query_params.get("to", frames / rate))
        first_frame, end_frame = max(round(begin * rate), 0), min(round(end * rate), frames)
    except (ValueError, OverflowError):
        raise BadInput("the segment has no times; expected seconds such as from=1.25&to=2.5") from None
    if first_frame >= end_frame:
        raise BadInput(f"no sound lies from {begin:g} s to {end:g} s of a recording of {frames / rate:.2f} s")
    return first_frame, end_frame


def _range(header: str, length: int) -> tuple[int, int] | None:
    """Returns the first and the last byte of a Range header, all bytes without one; None if there are no such bytes."""
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.strip())
    if match is None or match.groups() == ("", ""):
        return 0, length - 1
    first, last = match.groups()
    if not first:
        return max(length - int(last), 0), length - 1
    interval = int(first), min(int(last or length - 1), length - 1)
    return interval if interval[0] <= interval[1] else None


def _wav_header(rate: int, frames: int) -> bytes:
    size = 2 * frames
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", size + 36, b"WAVE") + layout + struct.pack("<4sI", b"data", size)
