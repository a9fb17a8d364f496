"""The types that weights are stored in, and which of them each tensor of a file gets.

A file is converted to one type, and that is the type of its large matrices. What is small or easily hurt stays in f32:
vectors, norms, biases, FSMN kernels, convolutions, the CIF output, position biases, the query embedding. Below 8 bits
the token embeddings and the output matrices have q8_0, where errors are heard first. This file opens nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from workbench.core.errors import BadInput
from workbench.formats.gguf_types import BY_NAME

TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
"""The types offered, from exact to small: those that the gguf package quantises to."""

BLOCKS = {name: (BY_NAME[name.upper()].block, BY_NAME[name.upper()].block_bytes) for name in TYPES}
"""Values and bytes of a block of each, along the last axis."""

FUNASR_TYPES = ("f32", "f16", "q8_0")
"""What FunASR's own export scripts offer."""

ALIGNMENT = 32  # bytes; GGUF's default, where every tensor begins
HALF_MOST = 65504.0  # the largest number in half precision, which the scales of the blocks are in


AUTO = "auto"
LARGE = 4e9  # bytes; a larger f32 file is not made unasked


class Kind(Enum):
    """What a tensor is, as far as its type depends on it."""

    EXACT = auto()  # always f32
    MATRIX = auto()
    TABLE = auto()  # token embeddings and output matrices


def check_type(name: str, offered: Sequence[str] = TYPES) -> str:
    """The name of a type that is offered; raises `BadInput` that lists those that are."""
    if name not in offered:
        raise BadInput(f"quantization is {name!r:.80}; expected one of {', '.join(offered)}")
    return name


def resolve_quantization(name: str, sizes: Mapping[str, int]) -> str:
    """The type that a name stands for: `auto` is f32 where that file stays below 4 GB, else f16; others are themselves.

    Args:
        sizes: bytes of the file in each type that is offered.

    Raises `BadInput` for a type that is not offered.
    """
    if name == AUTO:
        return "f32" if sizes["f32"] < LARGE or "f16" not in sizes else "f16"
    return check_type(name, (AUTO, *sizes))


def stored_type(kind: Kind, shape: Sequence[int], quantization: str) -> str:
    """The type of one tensor in a file of ours; rows that no whole blocks fill are f16."""
    if kind is Kind.EXACT or len(shape) != 2:
        return "f32"
    if kind is Kind.TABLE and quantization[:2] in ("q4", "q5"):
        quantization = "q8_0"
    return quantization if fits(shape, quantization) else "f16"


def fits(shape: Sequence[int], quantization: str) -> bool:
    """Whether rows of this shape are whole blocks of the type."""
    return shape[-1] % BLOCKS[quantization][0] == 0


def stored_bytes(shape: Sequence[int], stored: str) -> int:
    """Bytes of a tensor in a type, without padding."""
    values, size = BLOCKS[stored]
    return math.prod(shape) // values * size


def padded(size: int) -> int:
    """Bytes up to where the next tensor may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT
