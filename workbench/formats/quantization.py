"""The storage types of weights, and which type each tensor of a file gets.

A file is converted to one type, and that is the type of its large matrices. Small or sensitive tensors stay in f32:
vectors, norms, biases, FSMN kernels, convolutions, the CIF output, position biases, the query embedding. Below 8 bits
the token embeddings and the output matrices have q8_0, because errors matter most there. This file opens nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from workbench.core.errors import BadInput
from workbench.formats.gguf_types import BY_NAME

TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
"""The offered types, from exact to small: those to which the gguf package quantises."""

BLOCKS = {name: (BY_NAME[name.upper()].block, BY_NAME[name.upper()].block_bytes) for name in TYPES}
"""(values, bytes) of a block by type, along the last axis."""

FUNASR_TYPES = ("f32", "f16", "q8_0")
"""The types that FunASR's own export scripts offer."""

ALIGNMENT = 32  # bytes; GGUF's default, where every tensor begins
MAX_HALF = 65504.0  # the largest number in half precision, the type of the blocks' scales


AUTO = "auto"
MAX_AUTO_F32_BYTES = 4e9  # larger f32 files are made only on request


class Kind(Enum):
    """The kind of a tensor, as far as its type depends on it."""

    EXACT = auto()  # always f32
    MATRIX = auto()
    TABLE = auto()  # token embeddings and output matrices


def check_type(name: str, offered: Sequence[str] = TYPES) -> str:
    """Returns the name of an offered type; raises `BadInput`, which lists the offered ones, for any other."""
    if name not in offered:
        raise BadInput(f"quantization is {name!r:.80}; expected one of {', '.join(offered)}")
    return name


def resolve_quantization(name: str, sizes: Mapping[str, int]) -> str:
    """Returns the type for a name: `auto` is f32 if that file stays below 4 GB, else f16; other names stay.

    Args:
        sizes: the file's size in bytes, by offered type.

    Raises `BadInput` for a type that is not offered.
    """
    if name == AUTO:
        return "f32" if sizes["f32"] < MAX_AUTO_F32_BYTES or "f16" not in sizes else "f16"
    return check_type(name, (AUTO, *sizes))


def stored_type(kind: Kind, shape: Sequence[int], quantization: str) -> str:
    """Returns the type of one tensor in a file that we write; rows that are not whole blocks are f16."""
    if kind is Kind.EXACT or len(shape) != 2:
        return "f32"
    if kind is Kind.TABLE and quantization[:2] in ("q4", "q5"):
        quantization = "q8_0"
    return quantization if fits(shape, quantization) else "f16"


def possible_types(quantization: str) -> set[str]:
    """Returns the types that tensors may have in a file of this type that we write."""
    kinds_and_rows = ((kind, (1, width)) for kind in Kind for width in (1, BLOCKS[quantization][0]))
    return {stored_type(kind, shape, quantization) for kind, shape in kinds_and_rows}


def fits(shape: Sequence[int], quantization: str) -> bool:
    """Returns whether rows of this shape are whole blocks of the type."""
    return shape[-1] % BLOCKS[quantization][0] == 0


def stored_bytes(shape: Sequence[int], stored: str) -> int:
    """Returns the bytes of a tensor in a type, without padding."""
    values, size = BLOCKS[stored]
    return math.prod(shape) // values * size


def padded(size: int) -> int:
    """Returns the size, rounded up to where the next tensor may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT
