"""Returns the bytes of an embedding file that a user passes as a path, bytes, or base64 text.

The size is checked before anything is read or decoded. This file knows no format.
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.system.memory import size

LIMIT = 256_000_000  # bytes of a file, and of its values; enough for 15 000 tokens of width 4096 in float32

Source = Path | bytes | bytearray | memoryview | str

_HEAD = re.compile(r"data:[^,]{0,256},", re.ASCII | re.IGNORECASE)  # the head of a data URL
_STRANGE = re.compile(r"[^A-Za-z0-9+/]")


def read_payload(source: Source, where: str) -> bytes:
    """Returns the bytes of a file.

    Args:
        source: the file's path, its bytes, or its base64 text with or without a data URL's head. A text is never a
            path, because it may come from another machine, which must not read files of this one.
        where: its name, for messages.

    Raises `BadInput` for more than `LIMIT` bytes, for a file that cannot be read, and for text that is not base64.
    """
    if isinstance(source, Path):
        return _file(source, where)
    if isinstance(source, str):
        return _decoded(source, where)
    if isinstance(source, bytes | bytearray | memoryview):
        check_size(len(source) if not isinstance(source, memoryview) else source.nbytes, where)
        return bytes(source)
    raise BadInput(f"{where} is a {type(source).__name__}; expected a path, bytes, or base64 text")


def check_size(count: int, where: str) -> None:
    """Raises `BadInput` if the size in bytes exceeds the limit for embeddings."""
    if count > LIMIT:
        raise BadInput(f"{where} has {size(count)}; expected at most {size(LIMIT)}")


def _file(path: Path, where: str) -> bytes:
    try:
        if not path.is_file():
            kind = "it is a folder" if path.is_dir() else "it is not a regular file"
            reason = kind if path.exists() else "there is no such file"
            raise BadInput(f"{where} cannot be read: {reason}; expected a .npy, .npz, .pt or .safetensors file")
        check_size(path.stat().st_size, where)
        with path.open("rb") as file:
            content = file.read(LIMIT + 1)  # it may have grown since the check
    except (OSError, ValueError) as error:  # ValueError: a path with a null character in it
        raise BadInput(f"{where} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    check_size(len(content), where)
    return content


def _decoded(text: str, where: str) -> bytes:
    text = text.lstrip()
    start = 0
    if text[:5].lower() == "data:":
        head = _HEAD.match(text)
        if head is None or not head.group().lower().endswith(";base64,"):
            raise BadInput(
                f"{where} begins like a data URL, {text[:40]!r}; expected base64 after a head like "
                "data:application/octet-stream;base64,"
            )
        start = head.end()
    check_size((len(text) - start) // 4 * 3 * 76 // 78, where)  # lines of 76 characters and a line break of two
    text = "".join(text[start:].split())  # mail programs and shells break it into lines
    check_size(len(text) // 4 * 3 - 2, where)
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError as error:  # includes errors of the encoding
        invalid = _STRANGE.search(text.rstrip("="))
        if invalid is not None:
            raise BadInput(
                f"{where} is not base64: character {invalid.start() + 1} is {invalid.group()!r}; expected letters, "
                "digits, + and / (base64 is a file's content; in Python, a Path names a file)"
            ) from error
        if len(text) % 4:
            raise BadInput(
                f"{where} is not whole base64: it has {len(text)} characters, which is not a multiple of 4; expected "
                "all of them with the = at the end (base64 is a file's content; in Python, a Path names a file)"
            ) from error
        raise BadInput(f"{where} is not base64: {error}") from error


def as_base64(content: bytes) -> str:
    """Returns the base64 text of a file's bytes, for a request."""
    return base64.b64encode(content).decode("ascii")
