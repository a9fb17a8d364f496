"""Reads the header of a GGUF file: its metadata and its table of tensors, one window at a time.

Every count and length is checked against the remaining bytes before any loop or allocation. Long values are skipped and
decoded on access. This file knows nothing of models.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from workbench.core.errors import BadInput
from workbench.formats.gguf_types import ARRAY, FLAG, NUMBERS, TENSOR_TYPES, TEXT
from workbench.formats.weight_files import check_downloaded

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # the only difference is that version 3 may be big-endian
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 16

# Limits far beyond any real file, so that a damaged or hostile one does not keep the reader busy.
MAX_KEYS = 1 << 14
MAX_TENSORS = 1 << 15
MAX_TEXTS = 1 << 21  # sum over all arrays
MAX_KEY_BYTES = (1 << 16) - 1
MAX_TENSOR_NAME_BYTES = 64
MAX_DIMENSIONS = 4

_WINDOW = 1 << 20  # bytes read at a time
_DECODED_AT_ONCE = 1 << 12  # bytes; a text up to this length is decoded at once
_MIN_PAIR = 8 + 1 + 4 + 1  # fewest bytes of a key, a type and a value
_MIN_TENSOR = 8 + 1 + 4 + 4 + 8
_SCALARS = {number: struct.Struct(code) for number, code in NUMBERS.items()}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as the file's table describes it."""

    name: str
    shape: tuple[int, ...]  # slowest axis first, as in numpy
    type: str  # F32, Q8_0 ...
    offset: int  # position of its first byte in the file
    nbytes: int


@dataclass(frozen=True)
class ByteRange:
    """A value that was skipped: the position of its bytes, and how to read them."""

    first: int
    end: int
    kind: int  # type of the text, or of the array's elements
    count: int | None  # number of elements; None for a single text


@dataclass(frozen=True)
class Header:
    """The part of a file before the weights."""

    values: Mapping[str, Any]  # scalars and short texts; `ByteRange` for values that were skipped
    tensors: Mapping[str, TensorInfo]
    alignment: int
    bytes: int  # length of the file
    modified: int  # time of the last write, in ns


class _Cursor:
    """A reader that moves forward through a file and never beyond its end."""

    def __init__(self, file: BinaryIO, name: str, size: int) -> None:
        self.name, self.size = name, size
        self._file = file
        self._window, self._offset = b"", 0
        self._window_start = 0  # position of the window's first byte in the file
        self.texts_left = MAX_TEXTS

    @property
    def position(self) -> int:
        return self._window_start + self._offset

    @property
    def bytes_left(self) -> int:
        return self.size - self.position

    def take(self, count: int, what: str) -> bytes:
        self._fill_window(count, what)
        self._offset += count
        return self._window[self._offset - count : self._offset]

    def number(self, form: struct.Struct, what: str) -> Any:
        return form.unpack(self.take(form.size, what))[0]

    def text(self, longest: int, what: str) -> str:
        length = self.number(_U64, what)
        if length > longest:
            raise BadInput(f"{self.name} states that {what} is {length} bytes long; expected at most {longest}")
        return decoded(self.take(length, what), self.name, what)

    def skip(self, count: int, what: str) -> None:
        self._check(count, what)
        self._offset += count
        if self._offset > len(self._window):
            self._window_start, self._window, self._offset = self.position, b"", 0
            self._file.seek(self._window_start)

    def skip_texts(self, count: int, what: str) -> None:
        """Skips `count` texts. For a file with a large vocabulary, this loop takes most of the opening time."""
        unpack, window, offset = _U64.unpack_from, self._window, self._offset
        for _ in range(count):
            if offset + 8 > len(window):
                self._offset = offset
                self._fill_window(8, what)
                window, offset = self._window, self._offset
            next_offset = offset + 8 + unpack(window, offset)[0]
            if next_offset > len(window):
                self._offset = offset + 8
                self.skip(next_offset - offset - 8, what)
                window, offset = self._window, self._offset
            else:
                offset = next_offset
        self._offset = offset

    def _fill_window(self, count: int, what: str) -> None:
        """Makes sure that the next `count` bytes are in the window."""
        self._check(count, what)
        if self._offset + count > len(self._window):
            self._window_start, unread = self.position, self._window[self._offset :]
            self._window, self._offset = unread + self._file.read(max(count - len(unread), _WINDOW)), 0
            if len(self._window) < count:
                raise BadInput(f"{self.name} became shorter while it was read")

    def _check(self, count: int, what: str) -> None:
        if count > self.bytes_left:
            raise BadInput(
                f"{self.name} is damaged or cut short: {what} takes {count} bytes at byte {self.position}, "
                f"and the file has {self.bytes_left} more"
            )


def read_header(path: Path) -> Header:
    """Reads the part before the weights; raises `BadInput` for a file that is not a valid GGUF file."""
    check_downloaded(path, path.name)
    try:
        with path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            return _read(_Cursor(file, path.name, status.st_size), status.st_mtime_ns)
    except OSError as error:
        raise BadInput(f"the GGUF file {path.name} cannot be read: {error.strerror}") from error


def read_span(path: Path, header: Header, span: ByteRange, what: str) -> Any:
    """Returns a value that was skipped: a text, a list of texts, or an array of numbers or flags.

    Raises `BadInput` if it is damaged, or if the file has changed since it was opened.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if (status.st_size, status.st_mtime_ns) != (header.bytes, header.modified):
                raise BadInput(f"{path.name} has been written to since it was opened; open it again")
            file.seek(span.first)
            content = file.read(span.end - span.first)
    except OSError as error:
        raise BadInput(f"the GGUF file {path.name} cannot be read: {error.strerror}") from error
    if span.count is None:
        return decoded(content, path.name, what)
    if span.kind == TEXT:
        return _texts(content, span.count, path.name, what)
    if span.kind == FLAG:
        flags = np.frombuffer(content, np.uint8)
        if flags.size and flags.max() > 1:
            raise BadInput(f"{what} in {path.name} holds the flag {flags.max()}; expected 0 or 1")
        return flags.astype(bool)
    return np.frombuffer(content, NUMBERS[span.kind])


def decoded(content: bytes, name: str, what: str) -> str:
    """Returns the text that the bytes encode in UTF-8; raises `BadInput` if they are not valid."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{what} in {name} is not UTF-8 at its byte {error.start}") from error


def _texts(content: bytes, count: int, name: str, what: str) -> list[str]:
    texts, offset = [], 0
    for number in range(count):
        (length,) = _U64.unpack_from(content, offset)
        texts.append(decoded(content[offset + 8 : offset + 8 + length], name, f"text {number} of {what}"))
        offset += 8 + length
    return texts


def _read(cursor: _Cursor, modified: int) -> Header:
    name = cursor.name
    if cursor.bytes_left < len(MAGIC) or cursor.take(len(MAGIC), "the magic word") != MAGIC:
        raise BadInput(f"{name} is not a GGUF file: it does not begin with the letters GGUF")
    version = cursor.number(_U32, "the version")
    if version not in VERSIONS:
        if version and version & 0xFFFF == 0:
            raise BadInput(f"{name} is a big-endian GGUF file; expected a little-endian one")
        raise BadInput(f"{name} is a GGUF file of version {version}; expected version 2 or 3")
    tensors, keys = cursor.number(_U64, "the number of tensors"), cursor.number(_U64, "the number of keys")
    for count, limit, minimum_bytes, what in (
        (keys, MAX_KEYS, _MIN_PAIR, "metadata keys"),
        (tensors, MAX_TENSORS, _MIN_TENSOR, "tensors"),
    ):
        if count > min(limit, cursor.bytes_left // minimum_bytes):
            raise BadInput(
                f"{name} states that it has {count} {what}, more than "
                f"{_limit_text(cursor.bytes_left, minimum_bytes, limit)}"
            )
    values: dict[str, Any] = {}
    for number in range(keys):
        key = cursor.text(MAX_KEY_BYTES, f"the name of metadata key {number}")
        if key in values:
            raise BadInput(f"{name} has the metadata key {_printable(key)} twice")
        values[key] = _value(cursor, f"the value of {_printable(key)}")
    _check_whole(values, name)
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise BadInput(
            f"general.alignment in {name} is {alignment!r:.80}; expected a power of two from 8 to {MAX_ALIGNMENT}"
        )
    return Header(values, _tensors(cursor, tensors, alignment), alignment, cursor.size, modified)


def _check_whole(values: Mapping[str, Any], name: str) -> None:
    """Raises `BadInput` for one of the files that llama.cpp's gguf-split writes for a model."""
    count, number = values.get("split.count"), values.get("split.no")
    if type(count) is int and count > 1:
        part = f"part {number + 1}" if type(number) is int else "one part"
        raise BadInput(
            f"{name} is {part} of {count} of a split model; join them with llama.cpp's tool: llama-gguf-split --merge "
            "FIRST-PART.gguf WHOLE.gguf, and open the whole file"
        )


def _limit_text(bytes_left: int, minimum_bytes: int, limit: int) -> str:
    return (
        f"the {bytes_left} bytes behind have room for"
        if bytes_left // minimum_bytes < limit
        else f"the {limit} that are read here"
    )


def _value(cursor: _Cursor, what: str) -> Any:
    kind = cursor.number(_U32, f"the type of {what}")
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind], what)
    if kind == FLAG:
        flag = cursor.take(1, what)[0]
        if flag > 1:
            raise BadInput(f"{what} in {cursor.name} is the flag {flag}; expected 0 or 1")
        return bool(flag)
    if kind == TEXT:
        length = cursor.number(_U64, what)
        if length <= _DECODED_AT_ONCE:
            return decoded(cursor.take(length, what), cursor.name, what)
        first = cursor.position
        cursor.skip(length, what)
        return ByteRange(first, cursor.position, TEXT, None)
    if kind != ARRAY:
        raise BadInput(f"{what} in {cursor.name} is of type {kind}, which GGUF does not have")
    return _array(cursor, what)


def _array(cursor: _Cursor, what: str) -> ByteRange:
    name = cursor.name
    kind, count = cursor.number(_U32, what), cursor.number(_U64, what)
    first = cursor.position
    if kind == TEXT:
        if count > min(cursor.texts_left, cursor.bytes_left // 8):
            limit_text = _limit_text(cursor.bytes_left, 8, cursor.texts_left)
            raise BadInput(f"{what} in {name} states that it has {count} texts, more than {limit_text}")
        cursor.texts_left -= count
        cursor.skip_texts(count, what)
    elif kind in NUMBERS or kind == FLAG:
        cursor.skip(count * (1 if kind == FLAG else _SCALARS[kind].size), what)
    elif kind == ARRAY:
        raise BadInput(f"{what} in {name} is an array of arrays; expected one of numbers, flags or texts")
    else:
        raise BadInput(f"{what} in {name} is an array of type {kind}, which GGUF does not have")
    return ByteRange(first, cursor.position, kind, count)


def _tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    name = cursor.name
    tensors: dict[str, TensorInfo] = {}
    for number in range(count):
        info = _tensor(cursor, number, alignment)
        if info.name in tensors:
            raise BadInput(f"{name} has the tensor {_printable(info.name)} twice")
        tensors[info.name] = info
    data_start = -(-cursor.position // alignment) * alignment  # offsets in the table count from here
    end, previous = data_start, ""
    for info in sorted(tensors.values(), key=lambda each: each.offset):
        if data_start + info.offset < end:
            raise BadInput(f"tensors {_printable(previous)} and {_printable(info.name)} in {name} overlap")
        if data_start + info.offset - end >= alignment:  # ggml refuses such a file too
            predecessor = f"tensor {_printable(previous)}" if previous else "its table of tensors"
            raise BadInput(
                f"{name} is damaged: {data_start + info.offset - end} bytes behind {predecessor} belong to no tensor, "
                "so its type or its shape is wrong"
            )
        end, previous = data_start + info.offset + info.nbytes, info.name
    if tensors and end > cursor.size:
        raise BadInput(
            f"{name} is cut short or damaged: its tensors take {end} bytes, and {end - cursor.size} of them are missing"
        )
    return {key: replace(info, offset=data_start + info.offset) for key, info in tensors.items()}


def _tensor(cursor: _Cursor, number: int, alignment: int) -> TensorInfo:
    file = cursor.name
    name = cursor.text(MAX_TENSOR_NAME_BYTES, f"the name of tensor {number}")
    what = f"tensor {_printable(name)}"
    dimensions = cursor.number(_U32, f"the number of dimensions of {what}")
    if dimensions > MAX_DIMENSIONS:
        raise BadInput(f"{what} in {file} states that it has {dimensions} dimensions; expected at most 4")
    entry = struct.Struct(f"<{dimensions}QIQ")
    *sizes, number_of_type, offset = entry.unpack(cursor.take(entry.size, f"the description of {what}"))
    shape, kind = tuple(reversed(sizes)), TENSOR_TYPES.get(number_of_type)
    if 0 in shape:
        raise BadInput(f"{what} in {file} has the shape {shape}; expected no dimension of 0")
    if kind is None:
        raise BadInput(f"{what} in {file} is of a type that ggml does not have; expected one such as F32, F16 or Q8_0")
    values, row = math.prod(shape), shape[-1] if shape else 1
    if row % kind.block:
        raise BadInput(f"{what} in {file} has rows of {row} values; {kind.name} expects a multiple of {kind.block}")
    nbytes = values // kind.block * kind.block_bytes
    if offset % alignment:
        raise BadInput(f"{what} in {file} begins at byte {offset}; expected a multiple of {alignment}")
    return TensorInfo(name, shape, kind.name, offset, nbytes)


def _printable(name: str) -> str:
    """Returns a name that is safe to show in a message, even from a damaged file."""
    return name if name.isprintable() and 0 < len(name) <= 64 else f"{name!r:.80}"
