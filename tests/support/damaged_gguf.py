"""Damages a sound GGUF file in two hundred ways, the same ones every time: what no reader may crash or hang over.

Where the numbers and names of a file stand comes from the `gguf` package's reader.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

HEADER_BYTES = 24  # magic, version, number of tensors, number of keys
ABSURD = (0, 1, 2, 5, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
COUNT, TYPE = "count", "type"


@dataclass(frozen=True)
class Number:
    """A number that the structure of a file hangs on."""

    at: int
    size: int  # bytes
    what: str  # COUNT: a count, length, dimension or offset; TYPE: of a value or a tensor
    name: str


@dataclass(frozen=True)
class Map:
    """Where the parts of a file are."""

    metadata: int  # its first byte; the same of the others
    tensors: int
    data: int
    end: int
    numbers: Sequence[Number]


def map_of(path: Path) -> Map:
    """The parts of a sound file."""
    reader = gguf.GGUFReader(path)
    numbers = [Number(8, 8, COUNT, "tensors"), Number(16, 8, COUNT, "keys")]
    tensors = 0
    for field in reader.fields.values():
        if field.name.startswith("GGUF."):
            continue
        at = _places(field)
        numbers += [Number(at[0], 8, COUNT, "key-length"), Number(at[2], 4, TYPE, "value-type")]
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            numbers += [Number(at[3], 4, TYPE, "element-type"), Number(at[4], 8, COUNT, "elements")]
        if kind == gguf.GGUFValueType.STRING:
            numbers.append(Number(at[3], 8, COUNT, "text-length"))
        if len(field.types) > 1 and field.types[1] == gguf.GGUFValueType.STRING:
            numbers += [Number(place, 8, COUNT, "text-length") for place in at[5::2][:3]]
        tensors = max(tensors, field.offset + sum(part.nbytes for part in field.parts))
    for tensor in reader.tensors:
        at = _places(tensor.field)
        numbers += [
            Number(at[0], 8, COUNT, "name-length"),
            Number(at[2], 4, COUNT, "dimensions"),
            *(Number(at[3] + 8 * axis, 8, COUNT, "dimension") for axis in range(len(tensor.shape))),
            Number(at[4], 4, TYPE, "tensor-type"),
            Number(at[5], 8, COUNT, "offset"),
        ]
    return Map(HEADER_BYTES, tensors, reader.data_offset, path.stat().st_size, numbers)


def damaged(path: Path, count: int = 200, seed: int = 4) -> Iterator[tuple[str, bytes]]:
    """Copies of a sound file, each damaged in one way, with a name that says how.

    By turns: cut off at a random place; one to eight bytes turned into others in the header, the metadata or the table
    of tensors; a count, length, dimension or offset made absurd; a type made another; two of these at once. Some of
    them are still sound files, with other contents.
    """
    draw, parts, sound = np.random.default_rng(seed), map_of(path), path.read_bytes()
    ways: Sequence[tuple[str, Callable[[bytearray], str]]] = (
        ("cut-head", lambda content: _cut(content, draw, 0, parts.data)),
        ("cut-data", lambda content: _cut(content, draw, parts.data, parts.end)),
        ("flip-header", lambda content: _flip(content, draw, 0, HEADER_BYTES)),
        ("flip-metadata", lambda content: _flip(content, draw, parts.metadata, parts.tensors)),
        ("flip-tensors", lambda content: _flip(content, draw, parts.tensors, parts.data)),
        ("count", lambda content: _absurd(content, draw, parts.numbers, COUNT)),
        ("type", lambda content: _absurd(content, draw, parts.numbers, TYPE)),
        ("grown", lambda content: _several(content, draw, parts.numbers)),
    )
    for number in range(count):
        name, way = ways[number % len(ways)]
        content = bytearray(sound)
        yield f"{number:03}-{name}-{way(content)}", bytes(content)


def _places(field: gguf.ReaderField) -> list[int]:
    """Where each part of a field begins."""
    return [field.offset + sum(part.nbytes for part in field.parts[:index]) for index in range(len(field.parts))]


def _cut(content: bytearray, draw: np.random.Generator, first: int, end: int) -> str:
    at = int(draw.integers(first, end))
    del content[at:]
    return f"at-{at}"


def _flip(content: bytearray, draw: np.random.Generator, first: int, end: int) -> str:
    places = draw.choice(np.arange(first, end), int(draw.integers(1, 9)), replace=False)
    for at in places:
        content[at] ^= int(draw.integers(1, 256))
    return f"{len(places)}-from-{places.min()}"


def _absurd(content: bytearray, draw: np.random.Generator, numbers: Sequence[Number], what: str) -> str:
    chosen = [number for number in numbers if number.what == what]
    names = sorted({number.name for number in chosen})
    name = str(draw.choice(names))  # of all kinds alike, however many there are of each
    among = [number for number in chosen if number.name == name]
    number = among[int(draw.integers(len(among)))]
    form = "<I" if number.size == 4 else "<Q"
    present = struct.unpack_from(form, content, number.at)[0]
    values = [value & (2 ** (8 * number.size) - 1) for value in (range(45) if what == TYPE else ABSURD)]
    others = [value for value in values if value != present]
    value = others[int(draw.integers(len(others)))]
    struct.pack_into(form, content, number.at, value)
    return f"{name}-{value}"


def _several(content: bytearray, draw: np.random.Generator, numbers: Sequence[Number]) -> str:
    """Two damages, in a file that has been made longer so that larger counts find room."""
    content += bytes(int(draw.integers(1, 1 << 16)))
    return "-".join(_absurd(content, draw, numbers, what) for what in (COUNT, TYPE))
