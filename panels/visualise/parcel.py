"""Pictures as the browser reads them: JSON with arrays behind it, all numbers little-endian.

A parcel is a uint32 with the length of the JSON in bytes, the JSON, zeros up to a multiple of eight bytes, and the
arrays, each beginning at a multiple of eight bytes. Images are codes of two bytes, and of one byte if they are large:
code c of `most + 1` codes is `low + (high - low) * (c / most) ** power`, and the largest code means NaN. Other arrays
are float32. This file draws nothing and knows no model.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.plots.layers import Axis, Layer, Scale
from workbench.visualise.picture import Picture, Token

ALIGNED = 8  # bytes
MAX_TWO_BYTE_VALUES = 4_000_000  # values of an image that is sent with two bytes for each
TIME = "seconds"  # the unit and the label of an axis along the recording


def parcel(pictures: Sequence[Picture], titles: Sequence[str]) -> bytes:
    """Returns the pictures of one or two sides, of both together and of their difference, with their titles."""
    arrays: list[bytes] = []
    shared_scales = _shared_scales(pictures[:2])
    sides = [
        _side(picture, title, file, place, shared_scales if place < 2 else {}, arrays)
        for place, (picture, title, file) in enumerate(zip(pictures, titles, file_names(pictures, titles), strict=True))
    ]
    first = pictures[0]
    header = {"title": first.title, "sentence": first.sentence, "seconds": first.seconds, "sides": sides}
    header_bytes = json.dumps(header, ensure_ascii=False, allow_nan=False).encode()
    return b"".join([_aligned(struct.pack("<I", len(header_bytes)) + header_bytes), *arrays])


def file_names(pictures: Sequence[Picture], titles: Sequence[str]) -> list[str]:
    """Returns the name of each picture's files without their ending; all are different.

    What stands after the two sides, such as their difference, has its title and both sides in its name.
    """
    sides = [(picture.model, picture.runtime, picture.quantization) for picture in pictures[:2]]
    parts = [
        (picture.view, *(sides[place] if place < 2 else (titles[place].lower(), *sides[0], *sides[1])))
        for place, picture in enumerate(pictures)
    ]
    return [re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(filter(None, each))).strip("-.") for each in parts]


def _shared_scales(pictures: Sequence[Picture]) -> dict[str, Scale]:
    """Returns by name the scale that layers of all pictures share, so that equal colours are equal values."""
    scales_by_name: dict[str, Scale] = {}
    for layer in (layer for picture in pictures for layer in picture.layers):
        if layer.scale is not None:
            earlier = scales_by_name.get(layer.name, layer.scale)
            low, high = min(earlier.low, layer.scale.low), max(earlier.high, layer.scale.high)
            scales_by_name[layer.name] = replace(layer.scale, low=low, high=high)
    return scales_by_name


def _side(
    picture: Picture, title: str, file: str, place: int, scales: Mapping[str, Scale], arrays: list[bytes]
) -> dict[str, Any]:
    tokens = [{"text": each.text, "start": each.start, "end": each.end} for each in picture.tokens]
    return {
        "title": title,
        "file": file,
        "notes": list(picture.notes),
        "code": picture.code,
        "tokens": tokens,
        "layers": [
            _layer(layer, scales.get(layer.name, layer.scale), picture.tokens, place == 2, arrays)
            for layer in picture.layers
        ],
    }


def _layer(
    layer: Layer, scale: Scale | None, tokens: Sequence[Token], of_difference: bool, arrays: list[bytes]
) -> dict[str, Any]:
    values = np.asarray(layer.values)
    coded = _coded(values, layer) if layer.kind == "image" else (values.astype("<f4"), {"type": "f4"})
    array, described = coded
    place = sum(map(len, arrays))
    arrays.append(_aligned(array.tobytes()))
    return {
        "name": layer.name,
        "kind": layer.kind,
        "title": layer.title,
        "array": {**described, "at": place, "shape": list(values.shape)},
        "x": _axis(layer.x, tokens),
        "y": {**_axis(layer.y, tokens), "up": not layer.y.down},
        "labels": list(layer.labels),
        "scale": scale and {"name": scale.name, "low": scale.low, "high": scale.high, "diverging": scale.diverging},
        "over": layer.over,
        "equal": of_difference and layer.kind != "marks" and not np.any(values),
    }


def _axis(axis: Axis, tokens: Sequence[Token]) -> dict[str, Any]:
    """Returns an axis; `tokens` has the places of the picture's tokens if they are among its cells, else None."""
    ticks = [tick.strip() for tick in axis.ticks]
    places = _places(ticks, tokens) if axis.unit == "tokens" else None
    times = None if places is None else [None if place is None else _times(tokens[place]) for place in places]
    return {
        "label": axis.label,
        "unit": axis.unit,
        "start": axis.start,
        "step": axis.step,
        "ticks": ticks or None,
        "time": [axis.start, axis.step] if axis.unit == TIME == axis.label else None,
        "tokens": places,
        "spans": times,
    }


def _places(ticks: Sequence[str], tokens: Sequence[Token]) -> list[int | None] | None:
    """Returns for each cell which of the tokens it is; None if not all tokens are among the cells, in their order.

    The output stands at the end, after a prompt or tags, so the last cells that fit are the tokens.
    """
    token_numbers: list[int | None] = [None] * len(ticks)
    remaining = len(tokens)
    for cell in reversed(range(len(ticks))):
        if remaining and _without_word_mark(ticks[cell]) == _without_word_mark(tokens[remaining - 1].text):
            remaining -= 1
            token_numbers[cell] = remaining
    return token_numbers if tokens and not remaining else None


def _without_word_mark(text: str) -> str:
    """Returns the text of a token without the mark of a word's beginning."""
    return text.replace("\u2581", " ").strip()


def _times(token: Token) -> list[float] | None:
    return None if token.start is None or token.end is None else [token.start, token.end]


def _coded(values: np.ndarray, layer: Layer) -> tuple[np.ndarray, dict[str, Any]]:
    """Returns the codes of an image, and how they are read."""
    kind, highest_code = ("u2", 65534) if values.size <= MAX_TWO_BYTE_VALUES else ("u1", 254)
    is_finite = np.isfinite(values)
    finite = values[is_finite]
    is_faint = bool(finite.size) and float(np.quantile(finite[:: 1 + finite.size // 20_000], 0.9)) < 0.1 * float(
        finite.max()
    )
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    high = high if high > low else low + 1.0
    # Most values of attention are close to 0. If there are few codes, more of them are for such values.
    power = 2.0 if kind == "u1" and low >= 0 and not (layer.scale and layer.scale.diverging) else 1.0
    shares = np.full(values.shape, 0.0, np.float32)
    np.divide(values - low, high - low, out=shares, where=is_finite, casting="unsafe")
    codes = np.rint(highest_code * shares ** (1 / power)).astype(f"<{kind}")
    codes[~is_finite] = highest_code + 1
    return codes, {"type": kind, "low": low, "high": high, "power": power, "faint": is_faint and low >= 0}


def _aligned(content: bytes) -> bytes:
    return content + bytes(-len(content) % ALIGNED)
