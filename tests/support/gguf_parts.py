"""Writes GGUF files for tests: with the `gguf` package's own writer, or from parts that need not be sound."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gguf import GGUFWriter

Fill = Callable[[GGUFWriter], Any]


def write(path: Path, fill: Fill | None = None, architecture: str = "sensevoice-small") -> Path:
    """A file with whatever `fill` puts into the package's writer."""
    writer = GGUFWriter(path, architecture)
    if fill is not None:
        fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def by_hand(
    path: Path,
    keys: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    data: bytes = bytes(64),
    counts: tuple[int, int] | None = None,
    head: bytes = b"GGUF\x03\0\0\0",
) -> Path:
    """A file from its parts, sound or not; `counts` are of tensors and keys."""
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("it")] if keys is None else keys
    tensors = tensors or []
    content = head + struct.pack("<QQ", *(counts or (len(tensors), len(keys)))) + b"".join(keys + tensors)
    path.write_bytes(content + bytes(-len(content) % 32) + data)
    return path


def tensor(name: str = "w", shape: tuple[int, ...] = (4, 2), kind: int = 0, offset: int = 0) -> bytes:
    """An entry of the tensor table; the shape as it stands in the file."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value
