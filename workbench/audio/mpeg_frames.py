"""Finds MPEG audio whose rate or number of channels changes within the file, as where stations join recordings.

libsndfile's decoder stops at such a place without an error. This file decodes no sound.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from workbench.audio.file_view import kept_in_place

_WINDOW = 1 << 20  # bytes that are searched at once
_SURE = 4  # frames in a row that no other data has by chance
_RATES = (44_100, 48_000, 32_000)  # Hz of version 1; the others have a half and a quarter
_HALVES = {3: 0, 2: 1, 0: 2}  # by the bits of the version: how often its rate is halved
_LAYERS = {3: 1, 2: 2, 1: 3}  # by the bits of the layer
_KBITS = {  # by whether the version is 1, and the layer: kbit/s
    (True, 1): range(0, 480, 32),
    (True, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
# The first three bytes of a frame.
_THIRD = bytes(byte for byte in range(256) if 0 < byte >> 4 < 15 and byte >> 2 & 3 != 3)
_START = re.compile(b"\xff[\xe2-\xe7\xf2-\xf7\xfa-\xff][" + re.escape(_THIRD) + b"]", re.DOTALL)
_MONO = 3  # bits of the channel mode

Form = tuple[int, int, bool]  # what a decoder cannot change while it runs: layer, rate in Hz, whether it is mono


def changes_form(source: Path | BinaryIO) -> bool:
    """Returns whether MPEG audio goes on in another form than that of its first frames; an open file stays in place."""
    with kept_in_place(source) as file:
        return _changes(file)


def _changes(file: BinaryIO) -> bool:
    first: Form | None = None
    last, count = None, 0
    for form in _forms(file):
        count = count + 1 if form == last else 1
        last = form
        if form is not None and count >= _SURE and form != first:
            if first is not None:
                return True
            first = form
    return False


def _forms(file: BinaryIO) -> Iterator[Form | None]:
    """Yields the form of each frame, and None where something else lies between frames."""
    place = 0  # in the window
    file.seek(0)
    window = file.read(_WINDOW)
    while True:
        if place + 4 > len(window):
            file.seek(max(place - len(window), 0), io.SEEK_CUR)
            following = file.read(_WINDOW)
            window, place = window[place:] + following, 0
            if not following or len(window) < 4:
                return
        frame = _frame(window[place : place + 3], window[place + 3] >> 6 == _MONO)
        if frame is None:
            yield None
            following_frame = _START.search(window, place + 1)
            place = following_frame.start() if following_frame else max(place + 1, len(window) - 2)
        else:
            yield frame[0]
            place += frame[1]


@lru_cache(maxsize=1024)
def _frame(header: bytes, mono: bool) -> tuple[Form, int] | None:
    """Returns the form and the bytes of the frame that begins so; None if it is none, or states no bitrate."""
    if header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return None
    halves, layer = _HALVES.get(header[1] >> 3 & 3), _LAYERS.get(header[1] >> 1 & 3)
    bitrate, rate, padding = header[2] >> 4, header[2] >> 2 & 3, header[2] >> 1 & 1
    if halves is None or layer is None or bitrate in (0, 15) or rate == 3:
        return None
    hertz = _RATES[rate] >> halves
    bits = 1000 * _KBITS[halves == 0, layer if halves == 0 else min(layer, 2)][bitrate]
    if layer == 1:
        size = (12 * bits // hertz + padding) * 4
    else:
        size = (72 if layer == 3 and halves else 144) * bits // hertz + padding
    return (layer, hertz, mono), size
