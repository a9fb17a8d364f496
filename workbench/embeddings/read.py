"""Reads users' embeddings: `.npy`, `.npz`, `.pt` and `.safetensors`, as files, bytes or base64 text.

The content determines the format, never the name. Nothing is unpickled, and every size that a file claims is checked
against its real size and the limit before memory is reserved. This file knows no models.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.embeddings import numpy_files, tensor_files, torch_files
from workbench.embeddings.archive import Archive, is_archive
from workbench.embeddings.content import NAMELESS, Content, StoredTensor, shown
from workbench.embeddings.embedding import Embedding, as_embedding
from workbench.embeddings.payload import Source, read_payload
from workbench.formats.other_files import other_kind

ENCODINGS = ("npy", "npz", "pt", "safetensors")

_FORMATS = ".npy, .npz, .pt or .safetensors"
_PICKLE = b"\x80"  # first byte of every pickle of the binary protocols
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # PyTorch's magic number up to version 1.5
_JUDGED, _SHOWN = 512, 12  # bytes that show whether a file is a text; characters of a text in a message
_MAX_LISTED = 10  # most tensors of a file in a message


@dataclass(frozen=True)
class TensorEntry:
    """One of several tensors in a file."""

    name: str
    described: str  # its shape and type


class SeveralTensors(BadInput):
    """The error for a file with several tensors when no name was requested; `tensors` lists them."""

    def __init__(self, sentence: str, tensors: Sequence[TensorEntry] = ()):
        super().__init__(sentence)
        self.tensors = tuple(tensors)


def read_embedding(
    source: Source, *, encoding: str | None = None, tensor: str | None = None, name: str | None = None
) -> Embedding:
    """Returns the embedding in a file.

    Args:
        source: the file's path as a `Path`, its bytes, or its base64 text with or without a data URL's head. A text is
            never a path.
        encoding: npy, npz, pt or safetensors, if known; the content must agree.
        tensor: the name of the tensor in a file with several; by default the only one.
        name: a name for display and messages; by default the file's, followed by the tensor's if one was chosen.

    Floating-point numbers of 8 to 64 bits become float32, and a leading dimension of 1 is dropped. Raises `BadInput`,
    which states what was found and what was expected, and `SeveralTensors` if several tensors could be meant.
    """
    where = name or (_file_name(source) if isinstance(source, Path) else "the embedding")
    if encoding is not None and encoding not in ENCODINGS:
        raise BadInput(f"the encoding of {where} is {shown(str(encoding))}; expected one of {', '.join(ENCODINGS)}")
    content = open_content(read_payload(source, where), where)
    if encoding not in (None, content.encoding):
        raise BadInput(f"{where} is said to be {encoding} and is a .{content.encoding} file; expected both to agree")
    tensor_name, stored = _choose(content, tensor, where)
    if len(content.tensors) > 1:
        where = f"{shown(tensor_name)} in {where}"
    display_name = name or (_file_name(source) if isinstance(source, Path) else "embedding")
    if name is None and tensor is not None and tensor_name.isprintable():
        display_name = f"{display_name}: {tensor_name}"
    return as_embedding(stored, display_name, where, content.notes)


def open_content(content: bytes, where: str) -> Content:
    """Returns the tensors in a file of any of the formats, with shapes and types; reads no values yet.

    Raises `BadInput` for every other format and for damaged files.
    """
    if content.startswith(numpy_files.MAGIC):
        return numpy_files.open_npy(content, where)
    if is_archive(content):
        archive = Archive(content, where)
        return torch_files.open_pt(archive) if torch_files.is_torch_archive(archive) else numpy_files.open_npz(archive)
    if tensor_files.is_safetensors(content):
        return tensor_files.open_safetensors(content, where)
    if content.startswith(_OLD_TORCH):
        raise BadInput(
            f"{where} is a PyTorch file of the old form, a bare pickle, which is not read; expected a zip archive: "
            "load it with PyTorch and save it again with torch.save(tensor, path)"
        )
    if content.startswith(_PICKLE):
        raise BadInput(
            f"{where} is a bare pickle, which can hold code and is not read; expected {_FORMATS}, as numpy.save or "
            "torch.save write them"
        )
    raise BadInput(f"{where} {_beginning(content)}; expected the content of a {_FORMATS} file")


def _beginning(content: bytes) -> str:
    """Returns how a file of no known format begins, as a sentence without its subject."""
    if not content:
        return "is empty"
    head = content[:_JUDGED]
    if kind := other_kind(head):
        return f"is {kind}"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head).strip()  # the last letter may be cut
    except UnicodeDecodeError:
        text = ""
    if text and all(letter.isprintable() or letter.isspace() for letter in text):
        return f"is a text that begins with {text.splitlines()[0][:_SHOWN]!r}"
    return f"begins with {content[:_SHOWN]!r}"


def _choose(content: Content, tensor: str | None, where: str) -> tuple[str, StoredTensor]:
    """Returns the tensor of that name, or the only one."""
    tensors = content.tensors
    if tensor is None:
        if len(tensors) == 1:
            return next(iter(tensors.items()))
        if not tensors:
            aside = f" ({content.notes[0]})" if content.notes else ""
            raise BadInput(f"{where} holds no tensors{aside}; expected one")
        raise SeveralTensors(
            f"{where} holds {len(tensors)} tensors: {_listed(content)}; expected one, or the name of one of them as "
            "tensor",
            [TensorEntry(name, _described(stored)) for name, stored in tensors.items()],
        )
    if tensor in tensors and tensor != NAMELESS:
        return tensor, tensors[tensor]
    if NAMELESS in tensors and len(tensors) == 1:
        raise BadInput(f"{where} holds one tensor without a name; expected no name, and {shown(tensor)} was asked for")
    names = _listed(content) if tensors else "none at all"
    raise BadInput(f"{where} has no tensor {shown(tensor)}; expected one of: {names}")


def _listed(content: Content) -> str:
    """Returns names, shapes and types of the first tensors, as text."""
    entries = [
        f"{name if name.isprintable() and 0 < len(name) <= 60 else shown(name)} {_described(stored)}"
        for name, stored in content.tensors.items()
    ]
    remaining = len(entries) - _MAX_LISTED
    return ", ".join(entries[:_MAX_LISTED]) + (f" and {remaining} more" if remaining > 0 else "")


def _described(stored: StoredTensor) -> str:
    return f"{stored.shape} {stored.dtype}"


def _file_name(path: Path) -> str:
    name = path.name or str(path)  # that of the working folder is empty
    return name if name.isprintable() else shown(name)
