"""The content of a file of embeddings: tensors by name, each with its shape, type and a function that reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

NAMELESS = ""  # the name of a tensor that is alone in its file without a name


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file. Its size has been checked against the file's; its values have not been read."""

    shape: tuple[int, ...]
    dtype: str  # float16, bfloat16, int8 and so on, or a word for values that are not numbers
    bytes: int  # size of its values
    # Returns an array of its shape; bfloat16 and 8-bit floats as bits (see `workbench.embeddings.floats`).
    read: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Content:
    """What a file holds."""

    encoding: str  # npy, npz, pt or safetensors
    tensors: Mapping[str, StoredTensor]
    notes: tuple[str, ...] = ()  # remarks for the user


def shown(name: str) -> str:
    """Returns a name from a file in a form that fits into a sentence: quoted, on one line, shortened."""
    return f"{name!r:.80}" if len(repr(name)) <= 80 else f"{name[:70]!r}…"
