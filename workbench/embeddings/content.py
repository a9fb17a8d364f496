"""What is in a file of embeddings before any of it is chosen: tensors by name, each with its shape, type and reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

NAMELESS = ""  # the name of a tensor that is all there is in its file


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file. Its size has been checked against the file's, its values are not read yet."""

    shape: tuple[int, ...]
    dtype: str  # float16, bfloat16, int8 and the like, or a word for what is no number
    bytes: int  # of its values
    read: Callable[
        [], np.ndarray
    ]  # of its shape; bfloat16 and 8-bit floats as bits (see `workbench.embeddings.floats`)


@dataclass(frozen=True)
class Content:
    """What a file holds."""

    encoding: str  # npy, npz, pt or safetensors
    tensors: Mapping[str, StoredTensor]
    notes: tuple[str, ...] = ()  # what a reader should know of it


def shown(name: str) -> str:
    """A name out of a file, as a sentence can have it: in quotes, on one line, cut."""
    return f"{name!r:.80}" if len(repr(name)) <= 80 else f"{name[:70]!r}…"
