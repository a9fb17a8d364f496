"""Reads `.safetensors` files from memory. This file knows no embeddings."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from workbench.embeddings.content import Content, StoredTensor
from workbench.formats.array_headers import TENSOR_TYPES, TensorPlace, read_tensor_header

TYPES: Mapping[str, str] = {**TENSOR_TYPES, "F8_E4M3": "|u1", "F8_E5M2": "|u1"}

_NAMES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}  # types that numpy does not have
_MAX_HEADER_BYTES = 500_000  # bytes, for five thousand tensors; numbers with thousands of digits parse slowly


def is_safetensors(content: bytes) -> bool:
    """Returns whether a file begins like safetensors: a length that is not text, then a JSON object."""
    return content[8:9] == b"{" and int.from_bytes(content[:8], "little") < 1 << 48


def open_safetensors(content: bytes, where: str) -> Content:
    """Returns the tensors of a `.safetensors` file by name."""
    places, _ = read_tensor_header(io.BytesIO(content), len(content), where, TYPES, _MAX_HEADER_BYTES)
    return Content("safetensors", {name: _tensor(content, place) for name, place in places.items()})


def _tensor(content: bytes, place: TensorPlace) -> StoredTensor:
    def read() -> np.ndarray:
        return np.ndarray(place.shape, place.dtype, content, place.start)

    return StoredTensor(place.shape, _NAMES.get(place.code, place.dtype.name), place.bytes, read)
