"""What files of arrays say of themselves, held against their size before any of it is believed: `.npy`, `.safetensors`.

Nothing is unpickled, and no memory is taken for values: a header that claims ten gigabytes is refused for a file of ten
bytes. What is wrong is said in one sentence, a `BadInput`. This file knows neither traces nor embeddings.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from workbench.core.errors import BadInput

LONGEST_HEADER = 64 << 20  # bytes of a safetensors header: a hundred thousand tensors
MOST_ARRAYS = 100_000
MOST_AXES = 64  # of an array of numpy's

NUMPY_TYPES: Mapping[str, str] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
    "C64": "<c8",
}
"""numpy's types by the names that safetensors has for them."""
TENSOR_TYPES: Mapping[str, str] = {**NUMPY_TYPES, "BF16": "<u2"}
"""The same and bfloat16, whose bytes are bits to numpy."""

_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # other letters in the names of fields, which no array here has
}


@dataclass(frozen=True)
class ArrayHeader:
    """What an `.npy` array says of itself; its values follow in the file."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        """How many its values take."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies in a safetensors file, checked against the file's size."""

    code: str  # its type as the format calls it
    shape: tuple[int, ...]
    start: int  # of its first byte, counted from the file's beginning
    bytes: int
    dtype: np.dtype  # of its bytes to numpy


def read_array_header(file: IO[bytes], where: str) -> ArrayHeader:
    """Reads an `.npy` header, up to where the values begin. Whether there are as many as it claims is left to check."""
    try:
        shape, fortran_order, dtype = _READ_HEADER[np.lib.format.read_magic(file)](file)
    except Exception as error:  # numpy parses headers as Python, with all the errors that has
        raise BadInput(f"{where} is truncated or no .npy array: {said(error)}") from error
    if not all(map(_is_whole, shape)):
        raise BadInput(f"{where} is no .npy array: it claims the shape {shape!s:.80}")
    check_shape(shape, where)
    return ArrayHeader(shape, fortran_order, dtype)


def _is_whole(number: Any) -> bool:
    """Whether a number is whole and not negative; true and false, which Python counts, are none."""
    return type(number) is int and number >= 0


def check_shape(shape: Sequence[int], where: str) -> None:
    """Raises `BadInput` where numpy has no such array, be it of no values.

    The product of its sides is safe to take then: that of thousands of long ones takes a minute.
    """
    if len(shape) > MOST_AXES:
        raise BadInput(f"{where} claims a shape of {len(shape)} axes; expected at most {MOST_AXES}")
    if math.prod(side for side in shape if side) >= 1 << 56:  # values; an address has 63 bits
        raise BadInput(f"{where} claims the shape {'×'.join(map(_short, shape)):.120}, which no array has")


def _short(side: int) -> str:
    return str(side) if side < 1 << 63 else "2^63 or more"


def check_claim(header: ArrayHeader, there: int, most: int, where: str) -> None:
    """Raises `BadInput` unless an array's values fit into the bytes that are there, and into `most`."""
    if header.bytes > there:
        raise BadInput(
            f"{where} is truncated: its shape {header.shape} of {header.dtype} is {header.bytes} bytes, "
            f"and it has {there}"
        )
    if header.bytes > most:
        raise BadInput(f"{where} is {header.bytes} bytes large; expected at most {most}")


def read_tensor_header(
    file: IO[bytes],
    size: int,
    where: str,
    types: Mapping[str, str] = TENSOR_TYPES,
    longest: int = LONGEST_HEADER,
) -> tuple[dict[str, TensorPlace], dict[str, Any]]:
    """The tensors of a safetensors file of `size` bytes by name, and its metadata.

    Types other than `types` and headers of more than `longest` bytes are refused.
    """
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        claimed = f"its header claims {length} bytes" if size >= 8 else "it is too short for a header"
        raise BadInput(f"{where} is truncated or no safetensors file: {claimed}, and the file has {size}")
    if length > longest:
        raise BadInput(f"the header of {where} is {length} bytes long; expected at most {longest}")
    header = read_json(file.read(length), f"the header of {where}", unique_names)
    if not isinstance(header, dict) or len(header) > MOST_ARRAYS:
        raise BadInput(f"the header of {where} is no JSON object of at most {MOST_ARRAYS} tensors")
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict):
        raise BadInput(f"__metadata__ of {where} is no JSON object")
    return {name: _place(name, entry, 8 + length, size, where, types) for name, entry in header.items()}, metadata


def _place(name: str, entry: Any, begin: int, size: int, file: str, types: Mapping[str, str]) -> TensorPlace:
    where = f"tensor {name!r:.80} of {file}"
    try:
        code, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        whole = isinstance(shape, list) and all(map(_is_whole, (*shape, start, stop)))
    except (TypeError, KeyError, ValueError):
        whole = False
    if not whole:
        raise BadInput(f"{where} is not described as safetensors files do, by dtype, shape and data_offsets")
    if not isinstance(code, str) or code not in types:
        raise BadInput(f"{where} holds {code!r:.20}; expected one of {', '.join(types)}")
    check_shape(shape, where)
    if stop - start != math.prod(shape) * np.dtype(types[code]).itemsize:
        raise BadInput(f"{where} has the shape {shape} of {code} and {stop - start} bytes, which do not fit")
    if begin + stop > size:
        raise BadInput(f"{file} is truncated: {where} ends at byte {begin + stop}, and the file has {size}")
    return TensorPlace(code, tuple(shape), begin + start, stop - start, np.dtype(types[code]))


def unique_names(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose names stand once each; raises `ValueError` where one stands there twice."""
    found = dict(entries)
    if len(found) < len(entries):
        twice, _ = Counter(name for name, _ in entries).most_common(1)[0]
        raise ValueError(f"{twice!r:.80} stands there twice")
    return found


def read_json(text: bytes, where: str, objects: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None) -> Any:
    """The JSON value in a part of a file.

    Args:
        objects: makes an object of its names and values; raises `ValueError` where it is none.
    """
    try:
        return json.loads(text, object_pairs_hook=objects)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is not JSON: {said(error)}") from error


def said(error: Exception) -> str:
    """What another library says of a fault, on one short line."""
    return " ".join(str(error).split())[:120] or type(error).__name__
