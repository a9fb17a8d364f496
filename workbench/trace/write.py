"""Writes a trace as a `.safetensors` file, one array at a time; the file appears complete or not at all.

The file follows the format: eight bytes with the header's length, the header as JSON, the arrays' bytes. It has another
name until it is complete.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput, DiskFull
from workbench.core.paths import checked_path, is_directory
from workbench.formats.array_headers import NUMPY_TYPES
from workbench.system.atomic_files import DISK_FULL, is_device
from workbench.trace.spill import release

SUFFIX = ".safetensors"
_NAMES = {np.dtype(kind): name for name, kind in NUMPY_TYPES.items()}
_ALIGNMENT = 8  # alignment of the first array in the file


def trace_place(path: str | Path) -> Path:
    """Returns the absolute path of a trace that will be written and then read again.

    Raises `BadInput` if no file can be made there, or if a reader would not recognise its name.
    """
    place = checked_path(path, "the place of the trace").absolute()
    _check_folder(path, place)
    if place.suffix.lower() != SUFFIX:
        raise BadInput(f"the trace cannot be written to {path}: expected a name that ends in {SUFFIX}")
    return place


def discard_partial(path: Path) -> None:
    """Removes the unfinished file of a writer that was killed."""
    with contextlib.suppress(OSError):
        _partial(path).unlink(missing_ok=True)


def write_trace(path: str | Path, stages: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Path:
    """Writes arrays, and `meta` and their order as the file's metadata; replaces an existing file.

    If the arrays are in a file or are read on access, only one is in memory at a time. Raises `BadInput` if the path
    cannot be written or the format does not support an array; then no file is left there.
    """
    place = checked_path(path, "the place of the trace")
    _check_folder(path, place)
    descriptions = {name: _described(path, name, stages[name]) for name in stages}
    # Larger types first, so that each array starts at a multiple of its type's size.
    order = sorted(descriptions, key=lambda name: -descriptions[name][1].itemsize)
    header = _header(descriptions, order, meta)
    try:
        with _replaced_file(place) as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for name in order:
                array = stages[name]
                file.write(_bytes(array, descriptions[name][1]))
                release(array)
    except OSError as error:
        kind = DiskFull if error.errno in DISK_FULL else BadInput
        raise kind(f"the trace cannot be written to {path}: {error.strerror or error}") from error
    return place


def _check_folder(path: str | Path, place: Path) -> None:
    try:
        is_directory(_partial(place))  # the longer of the two names, which a system may refuse
    except OSError as error:
        raise BadInput(f"the trace cannot be written to {path}: {error.strerror or error}") from error
    if place.is_dir() or not place.parent.is_dir():
        wrong = "it is a folder" if place.is_dir() else f"there is no folder {place.parent}"
        raise BadInput(f"the trace cannot be written to {path}: {wrong}")
    if is_device(place):
        raise BadInput(f"the trace cannot be written to {path}: it is a device or a pipe")


def _partial(path: Path) -> Path:
    return _place(path).with_name(f"{_place(path).name}.partial")


def _place(path: Path) -> Path:
    """Returns the file that the path is a link to, so that a link stays a link; else the path."""
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def _replaced_file(path: Path) -> Iterator[Any]:
    """Yields a file to write to. Renames it at the end of the block, or removes it if the block fails."""
    try:
        with _partial(path).open("wb") as file:
            yield file
        _partial(path).replace(_place(path))
    except BaseException:
        discard_partial(path)
        raise


def _described(path: str | Path, name: str, array: np.ndarray) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Returns the shape and type of an array in the file, and whether it is a text there."""
    if array.dtype.kind == "U" and not array.ndim:
        return (len(_text(array)),), np.dtype(np.uint8), True
    if array.dtype.kind not in "biufc":
        raise BadInput(f"stage {name} holds {array.dtype}; expected an array of numbers, or one string")
    kind = array.dtype.newbyteorder("<")
    if kind not in _NAMES:
        raise BadInput(f"the trace cannot be written to {path}: safetensors has no {array.dtype}, which {name} holds")
    return array.shape, kind, False


def _header(
    descriptions: Mapping[str, tuple[tuple[int, ...], np.dtype[Any], bool]], order: list[str], meta: Any
) -> bytes:
    texts = [name for name, (_, _, text) in descriptions.items() if text]
    metadata = {"meta": json.dumps(meta), "stages": json.dumps(list(descriptions)), "strings": json.dumps(texts)}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        shape, kind, _ = descriptions[name]
        start, end = end, end + math.prod(shape) * kind.itemsize
        header[name] = {"dtype": _NAMES[kind], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    return text + b" " * (-len(text) % _ALIGNMENT)


def _bytes(array: np.ndarray, kind: np.dtype[Any]) -> memoryview | bytes:
    """Returns the bytes of an array in the file, without a copy if its memory already has that layout."""
    if array.dtype.kind == "U":
        return _text(array)
    return np.ascontiguousarray(array, dtype=kind).reshape(-1).view(np.uint8).data


def _text(array: np.ndarray) -> bytes:
    return str(array).encode("utf-8")
