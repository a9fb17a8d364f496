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


def npy(array: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npz(small: bool = False, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if small else np.savez)(file, **arrays)
    return file.getvalue()


def pt(value: object, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def safetensors(**tensors: torch.Tensor) -> bytes:
    return save_tensors({name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()})


def tensor_file(header: Any, values: bytes = b"") -> bytes:
    """A `.safetensors` file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


def npy_header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as zip_file:
        for name, content in members.items():
            zip_file.writestr(name, content)
    return file.getvalue()


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as zip_file:
        return {name: zip_file.read(name) for name in zip_file.namelist()}


def pt_with_description(pickle: bytes, storage: bytes = bytes(24), **other_members: bytes) -> bytes:
    """A `.pt` file with this pickled description and one storage."""
    return archive(
        {"x/data.pkl": pickle, "x/data/0": storage, **{f"x/{name}": value for name, value in other_members.items()}}
    )


class Trap:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


def assert_refused(source: Any, message: str, **options: Any) -> str:
    """Assert that reading raises one line with `message`; returns the line."""
    with pytest.raises(BadInput) as caught:
        read_embedding(source, **options)
    sentence = str(caught.value)
    assert message in sentence and "\n" not in sentence and sentence.isprintable() and len(sentence) < 900, sentence
    return sentence


def assert_holds(embedding: Embedding, expected: np.ndarray) -> None:
    """Assert that an embedding has these values in a writable array of its own."""
    assert (
        embedding.values.dtype == np.float32
        and embedding.values.flags.c_contiguous
        and embedding.values.flags.writeable
    )
    np.testing.assert_array_equal(embedding.values, expected)
    assert (embedding.tokens, embedding.hidden) == expected.shape and len(embedding.digest) == 16
