"""Files of embeddings as other programs write them, in memory."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save as save_tensors

from workbench.core.errors import BadInput
from workbench.embeddings import Embedding, read_embedding


def npy(array: np.ndarray, **how: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **how)
    return file.getvalue()


def npz(small: bool = False, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if small else np.savez)(file, **arrays)
    return file.getvalue()


def pt(value: object, **how: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **how)
    return file.getvalue()


def safetensors(**tensors: torch.Tensor) -> bytes:
    return save_tensors({name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()})


def tensor_file(header: Any, values: bytes = b"") -> bytes:
    """A `.safetensors` file of any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


def npy_header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as written:
        for name, content in members.items():
            written.writestr(name, content)
    return file.getvalue()


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as read:
        return {name: read.read(name) for name in read.namelist()}


def described(pickle: bytes, storage: bytes = bytes(24), **more: bytes) -> bytes:
    """A `.pt` file with a description written by hand and one storage."""
    return archive({"x/data.pkl": pickle, "x/data/0": storage, **{f"x/{name}": value for name, value in more.items()}})


class Trap:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


def refused(source: Any, said: str, **how: Any) -> str:
    """The one sentence with which something is refused, which says what is expected of it."""
    with pytest.raises(BadInput) as caught:
        read_embedding(source, **how)
    sentence = str(caught.value)
    assert said in sentence and "\n" not in sentence and sentence.isprintable() and len(sentence) < 900, sentence
    return sentence


def assert_holds(found: Embedding, expected: np.ndarray) -> None:
    """An embedding with these values, which nobody else can change."""
    assert found.values.dtype == np.float32 and found.values.flags.c_contiguous and found.values.flags.writeable
    np.testing.assert_array_equal(found.values, expected)
    assert (found.tokens, found.hidden) == expected.shape and len(found.digest) == 16
