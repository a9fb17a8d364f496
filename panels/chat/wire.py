"""The messages between the page and the server: JSON with recordings behind it, and chunks of speech.

A parcel is one JSON object and any number of sounds: a uint32 with the length of the JSON in bytes, the JSON, and for
each sound two uint32 (sample rate in Hz, number of samples) and its int16 samples. A chunk of speech is the column that
it belongs to, the sample rate and the number of codec rows so far as uint32, and int16 samples. All numbers are
little-endian. This file knows no model and no web server.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.audio.read import samples_to_int16
from workbench.core.errors import BadInput
from workbench.formats.json_values import count_values
from workbench.session.conversation import AudioPiece
from workbench.speech.replay import MAX_VALUES, Sound

LARGEST_JSON = 32 << 20  # bytes
MAX_SOUNDS = 1000
RATES = (1000, 384_000)  # Hz, the same limits as for recordings


def pack(content: Mapping[str, Any], sounds: Sequence[Sound]) -> bytes:
    """Returns a parcel."""
    # A bundle may hold half a character, which JSON can spell and UTF-8 cannot.
    content_bytes = json.dumps(content, ensure_ascii=False, allow_nan=False).encode(errors="replace")
    parts = [struct.pack("<I", len(content_bytes)), content_bytes]
    for sound in sounds:
        parts += [struct.pack("<II", sound.rate, len(sound.samples)), sound.samples.astype("<i2").tobytes()]
    return b"".join(parts)


def unpack(parcel: bytes) -> tuple[dict[str, Any], list[Sound]]:
    """Returns the content and the sounds of a parcel; raises `BadInput` for one that cannot be read."""
    if len(parcel) < 4:
        raise BadInput("the page sent nothing that can be read; reload it")
    (length,) = struct.unpack_from("<I", parcel)
    if length > LARGEST_JSON or length > len(parcel) - 4:
        raise BadInput("the page sent a message that is cut off or too long; reload it")
    text = parcel[4 : 4 + length]
    if count_values(text) > MAX_VALUES:
        raise BadInput(f"the conversation has more than {MAX_VALUES:,} values; begin a new one")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput("the page sent a message that is not JSON; reload it") from error
    if not isinstance(content, dict):
        raise BadInput("the page sent JSON that is not an object; reload it")
    return content, _sounds(parcel, 4 + length)


def _sounds(parcel: bytes, place: int) -> list[Sound]:
    found: list[Sound] = []
    while place < len(parcel):
        if len(parcel) - place < 8 or len(found) == MAX_SOUNDS:
            raise BadInput(f"the page sent recordings that are cut off, or more than {MAX_SOUNDS}; reload it")
        rate, count = struct.unpack_from("<II", parcel, place)
        place += 8
        if not RATES[0] <= rate <= RATES[1] or 2 * count > len(parcel) - place:
            raise BadInput("the page sent a recording that is cut off, or of an unknown sample rate; reload it")
        found.append(Sound(np.frombuffer(parcel, "<i2", count, place).astype(np.int16), rate))
        place += 2 * count
    return found


def chunk(column: int, piece: AudioPiece) -> bytes:
    """Returns a chunk of speech as the page reads it."""
    head = struct.pack("<III", column, piece.sample_rate, piece.rows)
    return head + samples_to_int16(np.clip(piece.samples, -1.0, 1.0)).astype("<i2").tobytes()
