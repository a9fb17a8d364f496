"""Writes embeddings as `.npy`, `.npz`, `.pt` or `.safetensors`, readable by the programs that own these formats.

Values are written in float32, without PyTorch, and the same values give the same bytes.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import overload

import numpy as np

from workbench.core.errors import BadInput
from workbench.embeddings.content import shown
from workbench.embeddings.embedding import embedding_of
from workbench.embeddings.read import ENCODINGS
from workbench.embeddings.torch_writing import saved_tensor

TENSOR = "embedding"  # the tensor's name in formats with names


@overload
def write_embedding(values: np.ndarray, path: None, encoding: str) -> bytes: ...
@overload
def write_embedding(values: np.ndarray, path: Path, encoding: str | None = None) -> Path: ...


def write_embedding(values: np.ndarray, path: Path | None, encoding: str | None = None) -> bytes | Path:
    """Writes values [tokens, hidden] as a file.

    Args:
        values: floating-point numbers; float64 is rounded to float32, the others stay exact.
        path: the file, which is replaced if it exists; None to return the bytes.
        encoding: npy, npz, pt or safetensors; by default the suffix of the path.

    Returns the path, or the bytes. Raises `BadInput` for values that are not an embedding (see `read_embedding`),
    another encoding, and a path that cannot be written.
    """
    suffix = encoding or (path.suffix.removeprefix(".").lower() if path else "")
    if suffix not in _WRITERS:
        target = (
            f"the encoding {shown(suffix)}" if encoding or not path else f"a name that ends in {shown(path.suffix)}"
        )
        raise BadInput(f"an embedding cannot be written with {target}; expected one of {', '.join(ENCODINGS)}")
    content = _WRITERS[suffix](embedding_of(np.asarray(values)).values)
    if path is None:
        return content
    try:
        path.write_bytes(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"the embedding cannot be written to {path}: {reason}") from error
    return path


def _npy(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, values.astype("<f4", copy=False), allow_pickle=False)
    return file.getvalue()


def _npz(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(f"{TENSOR}.npy"), _npy(values))  # ZipInfo's date is always the same
    return file.getvalue()


def _safetensors(values: np.ndarray) -> bytes:
    from safetensors.numpy import save

    return save({TENSOR: values})


_WRITERS = {"npy": _npy, "npz": _npz, "pt": saved_tensor, "safetensors": _safetensors}
