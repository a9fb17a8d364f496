"""Headers of array files (`.npy`, `.safetensors`), checked against the file's size before any value is trusted.

Nothing is unpickled. No memory is reserved for values: a file of ten bytes whose header claims ten gigabytes is
refused. Every fault raises `BadInput` with one sentence. This file knows neither traces nor embeddings.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from workbench.core.errors import BadInput, message_of

MAX_HEADER_BYTES = 64 << 20  # bytes of a safetensors header; enough for a hundred thousand tensors
MAX_ARRAYS = 100_000
MAX_AXES = 64  # of a numpy array

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
"""numpy's types by their names in safetensors."""
TENSOR_TYPES: Mapping[str, str] = {**NUMPY_TYPES, "BF16": "<u2"}
"""`NUMPY_TYPES`, and bfloat16 as raw bits, because numpy does not have that type."""

_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    # Version 3 differs in the letters of field names, which no array here has.
    (3, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class ArrayHeader:
    """The header of an `.npy` array; its values follow in the file."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        """The size of its values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class TensorPlace:
    """The position of a tensor in a safetensors file, checked against the file's size."""

    code: str  # the format's name of its type
    shape: tuple[int, ...]
    start: int  # position of its first byte in the file
    bytes: int
    dtype: np.dtype  # numpy's type for its bytes


def read_array_header(file: IO[bytes], where: str) -> ArrayHeader:
    """Reads an `.npy` header, up to where the values begin. The caller checks whether the values are all there."""
    try:
        shape, fortran_order, dtype = _READ_HEADER[np.lib.format.read_magic(file)](file)
    except Exception as error:  # numpy parses headers as Python code, which can raise any error
        raise BadInput(f"{where} is truncated or not an .npy array; expected a file that numpy.save wrote") from error
    if not all(map(_is_whole, shape)):
        raise BadInput(f"{where} is not an .npy array: it claims the shape {shape!s:.80}")
    check_shape(shape, where)
    return ArrayHeader(shape, fortran_order, dtype)


def _is_whole(number: Any) -> bool:
    """Returns whether a number is whole and not negative. True and False, which Python counts as numbers, are not."""
    return type(number) is int and number >= 0


def check_shape(shape: Sequence[int], where: str) -> None:
    """Raises `BadInput` if numpy has no array of this shape, even an empty one.

    Afterwards the product of the sides is safe to compute; without the check, thousands of long sides would take a
    minute.
    """
    if len(shape) > MAX_AXES:
        raise BadInput(f"{where} claims a shape of {len(shape)} axes; expected at most {MAX_AXES}")
    if math.prod(side for side in shape if side) >= 1 << 56:  # number of values; an address has 63 bits
        raise BadInput(f"{where} claims the shape {'×'.join(map(_short, shape)):.120}, which no array has")


def _short(side: int) -> str:
    return str(side) if side < 1 << 63 else "2^63 or more"


def check_claim(header: ArrayHeader, available: int, limit: int, where: str) -> None:
    """Raises `BadInput` unless an array's values fit into `available` bytes of the file and into `limit` bytes."""
    if header.bytes > available:
        raise BadInput(
            f"{where} is truncated: its shape {header.shape} of {header.dtype} is {header.bytes} bytes, "
            f"and it has {available}"
        )
    if header.bytes > limit:
        raise BadInput(f"{where} is {header.bytes} bytes large; expected at most {limit}")


def read_tensor_header(
    file: IO[bytes],
    size: int,
    where: str,
    types: Mapping[str, str] = TENSOR_TYPES,
    longest: int = MAX_HEADER_BYTES,
) -> tuple[dict[str, TensorPlace], dict[str, Any]]:
    """Returns the tensors of a safetensors file of `size` bytes by name, and its metadata.

    Types other than `types` and headers of more than `longest` bytes are refused.
    """
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        claimed = f"its header claims {length} bytes" if size >= 8 else "it is too short for a header"
        raise BadInput(f"{where} is truncated or not a safetensors file: {claimed}, and the file has {size}")
    if length > longest:
        raise BadInput(f"the header of {where} is {length} bytes long; expected at most {longest}")
    header = read_json(file.read(length), f"the header of {where}", unique_names)
    if not isinstance(header, dict) or len(header) > MAX_ARRAYS:
        raise BadInput(f"the header of {where} is not a JSON object of at most {MAX_ARRAYS} tensors")
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict):
        raise BadInput(f"__metadata__ of {where} is not a JSON object")
    return {name: _place(name, entry, 8 + length, size, where, types) for name, entry in header.items()}, metadata


def _place(name: str, entry: Any, data_start: int, size: int, file: str, types: Mapping[str, str]) -> TensorPlace:
    where = f"tensor {name!r:.80} of {file}"
    try:
        code, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        is_complete = isinstance(shape, list) and all(map(_is_whole, (*shape, start, stop)))
    except (TypeError, KeyError, ValueError):
        is_complete = False
    if not is_complete:
        raise BadInput(f"{where} is not described as safetensors files do, by dtype, shape and data_offsets")
    if not isinstance(code, str) or code not in types:
        raise BadInput(f"{where} holds {code!r:.20}; expected one of {', '.join(types)}")
    check_shape(shape, where)
    if stop - start != math.prod(shape) * np.dtype(types[code]).itemsize:
        raise BadInput(f"{where} has the shape {shape} of {code} and {stop - start} bytes, which do not fit")
    if data_start + stop > size:
        raise BadInput(f"{file} is truncated: {where} ends at byte {data_start + stop}, and the file has {size}")
    return TensorPlace(code, tuple(shape), data_start + start, stop - start, np.dtype(types[code]))


def unique_names(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object from its entries; raises `ValueError` if a name occurs twice."""
    entries_by_name = dict(entries)
    if len(entries_by_name) < len(entries):
        duplicate, _ = Counter(name for name, _ in entries).most_common(1)[0]
        raise ValueError(f"{duplicate!r:.80} occurs twice")
    return entries_by_name


def read_json(text: bytes, where: str, objects: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None) -> Any:
    """Returns the JSON value in a part of a file.

    Args:
        objects: makes an object from its names and values; raises `ValueError` if they are invalid.
    """
    try:
        return json.loads(text, object_pairs_hook=objects)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is not JSON: {message_of(error, 120)}") from error
