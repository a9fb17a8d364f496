"""Reads `.npy` and `.npz` files from memory. Nothing is unpickled; this file knows no embeddings."""

from __future__ import annotations

import io
import math

import numpy as np

from workbench.core.errors import BadInput
from workbench.embeddings.archive import Archive
from workbench.embeddings.content import NAMELESS, Content, StoredTensor, shown
from workbench.embeddings.payload import LIMIT
from workbench.formats.array_headers import ArrayHeader, check_claim, read_array_header

MAGIC = np.lib.format.MAGIC_PREFIX
SUFFIX = ".npy"

_MAX_HEADER_BYTES = 70_000  # bytes before the values of an array; numpy writes little more than 65 535


def open_npy(content: bytes, where: str) -> Content:
    """Returns the array of an `.npy` file."""
    file = io.BytesIO(content[:_MAX_HEADER_BYTES])
    header = read_array_header(file, where)
    start = file.tell()
    check_values(header, len(content) - start, where)
    return Content("npy", {NAMELESS: _tensor(header, lambda: _array(content, start, header))})


def open_npz(archive: Archive) -> Content:
    """Returns the arrays of an `.npz` file by name."""
    tensors = {}
    for name in archive.names:
        if not name.endswith(SUFFIX):
            raise BadInput(
                f"{archive.where} holds {shown(name)}; expected arrays only, as numpy.savez writes them, or one "
                "tensor, as torch.save does"
            )
        tensors[name.removesuffix(SUFFIX)] = _member(archive, name)
    return Content("npz", tensors)


def _member(archive: Archive, name: str) -> StoredTensor:
    where = f"{shown(name)} in {archive.where}"
    file = io.BytesIO(archive.read(name, _MAX_HEADER_BYTES))
    header = read_array_header(file, where)
    start = file.tell()
    check_values(header, archive.size(name) - start, where)
    return _tensor(header, lambda: _array(archive.read(name), start, header))


def check_values(header: ArrayHeader, available: int, where: str) -> None:
    """Raises `BadInput` unless an array's values are complete and nothing follows them."""
    if header.dtype.hasobject:
        raise BadInput(f"{where} holds objects, which are pickled and not read; expected floating-point numbers")
    check_claim(header, available, LIMIT, where)
    if header.bytes < available:
        raise BadInput(
            f"{where} has {available - header.bytes} bytes behind the values of its shape {header.shape}; expected one "
            "array"
        )


def _tensor(header: ArrayHeader, read: object) -> StoredTensor:
    return StoredTensor(header.shape, _type_name(header.dtype), header.bytes, read)  # type: ignore[arg-type]


def _type_name(dtype: np.dtype) -> str:
    if dtype.kind in "SU":
        return "text"
    if dtype.kind == "V":
        if dtype.names:
            return "records"
        # A package can add bfloat16 to numpy, but the file does not store which type it was.
        aside = " (such files do not say bfloat16; .safetensors and .pt do)" if dtype.itemsize == 2 else ""
        return f"values of {dtype.itemsize} bytes without a type{aside}"
    return dtype.name


def _array(content: bytes, start: int, header: ArrayHeader) -> np.ndarray:
    count = math.prod(header.shape)
    flat = np.frombuffer(content, header.dtype, count, start)
    return flat.reshape(header.shape, order="F" if header.fortran_order else "C")
