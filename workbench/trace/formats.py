"""Opens the file formats of traces without reading any array.

The formats are `.safetensors`, `.npz`, and directories of `.npy`, also zipped. Every size that a file claims is checked
against the file before memory is reserved. Nothing is unpickled. Every fault raises `BadInput` with one sentence. This
file knows names and arrays, not which of them are stages.
"""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from workbench.core.errors import BadInput, message_of
from workbench.formats.array_headers import (
    MAX_ARRAYS,
    TensorPlace,
    check_claim,
    read_array_header,
    read_json,
    read_tensor_header,
)
from workbench.formats.gguf_file import is_gguf
from workbench.system.folders import is_system_file
from workbench.trace.order import GROUPS
from workbench.trace.other_dumps import how_to_write, torch_advice

Reader = Callable[[], np.ndarray]

MAX_ARRAY_BYTES = 4 << 30  # a stage of an hour of speech has a tenth of that
FREELY_COMPRESSED_BYTES = (
    256 << 20
)  # bytes of an array that an archive may compress at any ratio; it is unpacked in memory
MAX_COMPRESSION = 100  # largest compression ratio of a larger array; numbers never reach it
META = "meta.json"  # metadata beside .npy files
MAX_META_BYTES = 1 << 20  # bytes of that file
_ARRAYS_OF_GGUF = "stages that a program wrote so have to be written as .npy, .npz or .safetensors"
_EXPECTED = "expected a .safetensors or .npz file, or a directory or .zip of .npy files"


@dataclass(frozen=True)
class Stored:
    """The content of a file: a function for each array that reads it, and metadata as plain JSON values."""

    arrays: Mapping[str, Reader]
    meta: Mapping[str, Any]
    order: tuple[str, ...] = ()  # the recorded order, if we wrote the trace
    texts: frozenset[str] = frozenset()  # arrays that hold UTF-8 bytes
    types: frozenset[str] = frozenset()  # types of the arrays, such as float16 and bfloat16
    is_sequence: bool = False  # whether the file keeps the order in which another program wrote the arrays


def open_stored(path: str | Path, otherwise: str = "") -> Stored:
    """Opens a `.safetensors` or `.npz` file, or a directory or `.zip` of `.npy` files.

    Args:
        otherwise: the suffix to assume for any other file name.

    Raises `BadInput` for anything else.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return _with_printable_names(_directory(path), path.name)
        if not path.is_file():
            raise BadInput(f"there is no trace {path}; {_EXPECTED}")
        kind = _KINDS.get(path.suffix.lower()) or _KINDS.get(otherwise)
        if kind is None:
            if is_gguf(path):
                compares = f"`workbench compare MODEL {path.name}` compares its weights with the model's checkpoint"
                raise BadInput(f"{path.name} is a GGUF file and not a trace; {compares}, and {_ARRAYS_OF_GGUF}")
            if (advice := how_to_write(path)) is not None:
                raise BadInput(f"{path.name} is not a trace: {advice}")
            raise BadInput(f"{path.name} is not a trace; {_EXPECTED}")
        return _with_printable_names(kind(path), path.name)
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read: {error.strerror or error}") from error


def is_trace_name(path: str | Path) -> bool:
    """Returns whether a path names an existing file with the ending of a trace, which no model has."""
    path = Path(path)
    return path.suffix.lower() in _KINDS and path.is_file()


def _with_printable_names(stored: Stored, place: str) -> Stored:
    """Returns the argument; raises `BadInput` if a name has unprintable characters."""
    bad_name = next((name for name in stored.arrays if not name.isprintable()), None)
    if bad_name is not None:
        raise BadInput(f"{place} has an array with the name {bad_name!r:.80}; expected letters, digits and dots")
    return stored


# safetensors


def _safetensors(path: Path) -> Stored:
    with path.open("rb") as file:
        places, metadata = read_tensor_header(file, path.stat().st_size, path.name)
    arrays = {name: _tensor(path, place) for name, place in places.items()}
    order, strings, meta = (_recorded(path, metadata, key, kind) for key, kind in _RECORDED.items())
    if "meta" not in metadata:
        meta = {key: metadata[key] for key in _TOP_LEVEL_KEYS if _is_text(metadata.get(key))}
    types = frozenset("bfloat16" if place.code == "BF16" else place.dtype.name for place in places.values())
    return Stored(arrays, meta, tuple(filter(_is_text, order)), frozenset(filter(_is_text, strings)), types)


_TOP_LEVEL_KEYS = (
    "model",
    "runtime",
    "dtype",
    "quantization",
    "input_digest",
)  # keys that other programs use, without `meta`
_RECORDED: Mapping[str, type] = {"stages": list, "strings": list, "meta": dict}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _recorded(path: Path, metadata: Mapping[str, Any], key: str, kind: type) -> Any:
    """Returns the value that `Trace.save` wrote under a key of the metadata; empty in files of other programs."""
    place = f"the metadata {key} of {path.name}"
    value = metadata.get(key)
    if value is None:
        return kind()
    content = read_json(value.encode(), place) if isinstance(value, str) else value
    if not isinstance(content, kind):
        raise BadInput(
            f"{place} is a JSON {type(content).__name__}; expected {'an object' if kind is dict else 'a list'}"
        )
    return content


def _tensor(path: Path, place: TensorPlace) -> Reader:
    def read() -> np.ndarray:
        if not math.prod(place.shape):
            return np.empty(place.shape, np.float32 if place.code == "BF16" else place.dtype)
        try:
            mapped = np.memmap(path, np.uint8, "r", place.start, (place.bytes,))
        except (ValueError, OSError) as error:  # the file has changed by now, or is gone
            raise BadInput(f"{path.name} cannot be read any more: {message_of(error, 120)}") from error
        array = np.ndarray(place.shape, place.dtype, mapped)
        return (array.astype(np.uint32) << 16).view(np.float32) if place.code == "BF16" else array

    return read


# numpy's files


def _npz(path: Path) -> Stored:
    stored = _archive(path, "arrays only, as numpy.savez writes them", ())
    arrays = {name.removesuffix(".npy"): reader for name, reader in stored.arrays.items()}
    return replace(stored, arrays=arrays, is_sequence=list(arrays) != sorted(arrays))


def _zip(path: Path) -> Stored:
    """Returns a zipped directory. If all members are in one folder, the arrays' names leave out the folder's name."""
    stored = _archive(path, f"the .npy files of a directory, and {META}", (META,))
    # Some programs for Windows write the separators of their system, against the standard.
    parts = {name: name.removesuffix(".npy").replace("\\", "/").split("/") for name in stored.arrays}
    in_one_folder = len({each[0] for each in parts.values()}) == 1 and all(len(each) > 1 for each in parts.values())
    omits_folder = in_one_folder and next(iter(parts.values()))[0] not in GROUPS
    arrays: dict[str, Reader] = {}
    for member, each in parts.items():
        name = ".".join(each[1:] if omits_folder else each)
        if name in arrays:
            raise BadInput(f"{path.name} has two files for {name}; expected one for each stage")
        arrays[name] = stored.arrays[member]
    if not arrays:
        raise BadInput(f"{path.name} holds no .npy files; expected one for each stage")
    return replace(stored, arrays=arrays)


def _archive(path: Path, expected: str, json_names: tuple[str, ...]) -> Stored:
    """Returns the arrays of an archive by member name, and the object in the JSON file beside them.

    Args:
        expected: the allowed content, for messages.
        json_names: names of the JSON file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.infolist() if not each.is_dir() and not is_system_file(each.filename)]
            for name, count in Counter(each.filename for each in members).most_common(1):
                if count > 1:
                    raise BadInput(f"{path.name} has {count} files with the name {name!r:.80}; expected one for each")
            files = [each for each in members if each.filename.endswith(".npy")]
            other_members = [each for each in members if each not in files]
            if any(PurePosixPath(each.filename).name == "data.pkl" for each in other_members):
                raise BadInput(f"{path.name} is not a trace: {torch_advice(path.name)}")
            unexpected = next(
                (each.filename for each in other_members if Path(each.filename).name not in json_names), None
            )
            if unexpected is not None or len(members) > MAX_ARRAYS:
                fault = f"holds {unexpected!r:.80}" if unexpected is not None else f"holds {len(members)} files"
                raise BadInput(f"{path.name} {fault}; expected {expected}")
            types = set()
            for member in files:
                if member.file_size > max(FREELY_COMPRESSED_BYTES, MAX_COMPRESSION * member.compress_size):
                    raise BadInput(
                        f"{member.filename!r:.80} of {path.name} unpacks from {member.compress_size} bytes to "
                        f"{member.file_size}; expected numbers, which cannot be packed so much"
                    )
                with archive.open(member) as file:
                    types.add(_header(file, member.file_size, f"{member.filename!r:.80} of {path.name}"))
            meta = {}
            for member in other_members[:1]:
                with archive.open(member) as file:
                    meta = _meta(file, path)
    except (BadInput, OSError):
        raise
    except Exception as error:  # zipfile has no common error for damaged files
        raise BadInput(
            f"{path.name} is truncated or not a {path.suffix.lower()} file: {message_of(error, 120)}"
        ) from error
    arrays = {each.filename: _member(path, each.filename) for each in files}
    return Stored(arrays, meta, types=frozenset(types))


def _meta(file: IO[bytes], path: Path) -> dict[str, Any]:
    """Returns the object in the JSON file beside the arrays of `path`."""
    text = file.read(MAX_META_BYTES + 1)
    if len(text) > MAX_META_BYTES:
        raise BadInput(
            f"{META} of {path.name} is longer than {MAX_META_BYTES} bytes; expected dtype, input_digest and so on"
        )
    meta = read_json(text, f"{META} of {path.name}")
    if not isinstance(meta, dict):
        raise BadInput(f"{META} of {path.name} is not a JSON object; expected dtype, input_digest and so on")
    return meta


def _member(path: Path, name: str) -> Reader:
    def read() -> np.ndarray:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(name) as file:
                return np.lib.format.read_array(file, allow_pickle=False)
        except Exception as error:
            raise BadInput(f"{name!r:.80} of {path.name} is truncated or damaged: {message_of(error, 120)}") from error

    return read


def _directory(path: Path) -> Stored:
    files = sorted(each for each in path.rglob("*.npy") if not is_system_file(each.relative_to(path).as_posix()))
    if not files:
        raise BadInput(f"the directory {path.name} holds no .npy files; expected one for each stage")
    if len(files) > MAX_ARRAYS:
        raise BadInput(f"the directory {path.name} holds {len(files)} .npy files; expected at most {MAX_ARRAYS}")
    meta = {}
    if (path / META).is_file():
        with (path / META).open("rb") as meta_file:
            meta = _meta(meta_file, path)
    arrays: dict[str, Reader] = {}
    types = set()
    for file in files:
        name = ".".join(file.relative_to(path).with_suffix("").parts)
        if name in arrays:
            raise BadInput(f"the directory {path.name} has two files for {name}; expected one for each stage")
        arrays[name], kind = _file(file)
        types.add(kind)
    return Stored(arrays, meta, types=frozenset(types))


def _single(path: Path) -> Stored:
    reader, kind = _file(path)
    return Stored({path.stem: reader}, {}, types=frozenset({kind}))


def _file(path: Path) -> tuple[Reader, str]:
    """Returns the reader of one `.npy` file, and its type. Checks its header now; the values stay in the file."""
    try:
        if not path.is_file():  # reading a pipe would block
            raise BadInput(f"{path.name} is not a readable file; expected an .npy array")
        with path.open("rb") as file:
            kind = _header(file, path.stat().st_size, path.name)
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read: {error.strerror or error}") from error

    def read() -> np.ndarray:
        try:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (ValueError, OSError, EOFError) as error:
            raise BadInput(f"{path.name} is truncated or damaged: {message_of(error, 120)}") from error

    return read, kind


def _header(file: IO[bytes], size: int, place: str) -> str:
    """Returns the type of an array in a file of `size` bytes, after a check of its header."""
    header = read_array_header(file, place)
    if header.dtype.hasobject or header.dtype.kind not in "biufcSU":
        kind = "objects" if header.dtype.hasobject else str(header.dtype)
        raise BadInput(f"{place} holds {kind}{_TYPE_HINTS.get(kind, '')}; expected numbers or a string")
    check_claim(header, size - file.tell(), MAX_ARRAY_BYTES, place)
    return header.dtype.name


_TYPE_HINTS = {
    "|V2": " (numpy has no bfloat16 and writes it so; convert it to float32)",
    "objects": " (a dictionary or list of arrays; numpy.savez('port.npz', **arrays) writes it)",
}
_KINDS = {".safetensors": _safetensors, ".npz": _npz, ".zip": _zip, ".npy": _single}
