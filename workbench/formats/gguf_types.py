"""The types of GGUF files: of metadata values, and of tensors with their blocks and conversion to float32.

A quantised row is a sequence of blocks. Each block holds a fixed number of values in a fixed number of bytes. The
package `gguf` has the same table (`GGML_QUANT_SIZES`), and a test compares the two. This file does not import it for
the table, because it also loads tokenizers, which takes a second, and because files without quantised weights do not
need it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from workbench.core.errors import BadInput, Unavailable

BFLOAT16 = "BF16"
TEXT, ARRAY, FLAG = 8, 9, 7
NUMBERS: Mapping[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""The metadata types that are numbers, in the notation that numpy and struct share."""

_CHUNK_VALUES = 1 << 20  # values dequantised at a time, so that intermediate results stay in the processor's cache


@dataclass(frozen=True)
class TensorType:
    """The storage type of a tensor's values."""

    number: int  # the type's number in a file and in ggml
    name: str
    block: int  # values in a block
    block_bytes: int
    dtype: str | None = None  # numpy's notation, if numpy knows the type


TENSOR_TYPES: Mapping[int, TensorType] = {
    kind.number: kind
    for kind in (
        TensorType(0, "F32", 1, 4, "<f4"),
        TensorType(1, "F16", 1, 2, "<f2"),
        TensorType(2, "Q4_0", 32, 18),
        TensorType(3, "Q4_1", 32, 20),
        TensorType(6, "Q5_0", 32, 22),
        TensorType(7, "Q5_1", 32, 24),
        TensorType(8, "Q8_0", 32, 34),
        TensorType(9, "Q8_1", 32, 40),
        TensorType(10, "Q2_K", 256, 84),
        TensorType(11, "Q3_K", 256, 110),
        TensorType(12, "Q4_K", 256, 144),
        TensorType(13, "Q5_K", 256, 176),
        TensorType(14, "Q6_K", 256, 210),
        TensorType(15, "Q8_K", 256, 292),
        TensorType(16, "IQ2_XXS", 256, 66),
        TensorType(17, "IQ2_XS", 256, 74),
        TensorType(18, "IQ3_XXS", 256, 98),
        TensorType(19, "IQ1_S", 256, 50),
        TensorType(20, "IQ4_NL", 32, 18),
        TensorType(21, "IQ3_S", 256, 110),
        TensorType(22, "IQ2_S", 256, 82),
        TensorType(23, "IQ4_XS", 256, 136),
        TensorType(24, "I8", 1, 1, "<i1"),
        TensorType(25, "I16", 1, 2, "<i2"),
        TensorType(26, "I32", 1, 4, "<i4"),
        TensorType(27, "I64", 1, 8, "<i8"),
        TensorType(28, "F64", 1, 8, "<f8"),
        TensorType(29, "IQ1_M", 256, 56),
        TensorType(30, BFLOAT16, 1, 2),
        TensorType(34, "TQ1_0", 256, 54),
        TensorType(35, "TQ2_0", 256, 66),
        TensorType(39, "MXFP4", 32, 17),
        TensorType(40, "NVFP4", 64, 36),
        TensorType(41, "Q1_0", 128, 18),
        TensorType(42, "Q2_0", 64, 18),
    )
}
"""ggml's types by their number in a file. The missing numbers belong to types that ggml has removed."""

NOT_FOR_PRODUCTS = frozenset({"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"})
"""ggml's types that its products with a matrix do not take; a graph with one ends the process."""

BY_NAME: Mapping[str, TensorType] = {kind.name: kind for kind in TENSOR_TYPES.values()}


def dequantised(rows: np.ndarray, name: str, where: str) -> np.ndarray:
    """Returns the values of stored rows.

    Args:
        rows: bytes, uint8 [rows, bytes of a row].
        name: the type, such as Q8_0.
        where: the tensor and its file, for messages.

    Returns float32 [rows, values of a row]; for F32 it shares the memory of `rows`. Raises `BadInput` for a type that
    has no definition in numpy, and `Unavailable` if the package `gguf`, which defines the quantised types, is missing.
    """
    with np.errstate(all="ignore"):  # values in damaged blocks may be NaN or overflow
        return _dequantised(rows, BY_NAME[name], where)


def import_definition(name: str) -> None:
    """Imports what `dequantised` needs for a type, so that the first call does not wait up to 0.8 s for the import."""
    if BY_NAME[name].dtype is None and name != BFLOAT16:
        with contextlib.suppress(Unavailable):  # the first call says so, if there is one
            _quants(name)


def _dequantised(rows: np.ndarray, kind: TensorType, where: str) -> np.ndarray:
    if kind.dtype == "<f4":
        return rows.view(kind.dtype)
    if kind.dtype:
        return rows.view(kind.dtype).astype(np.float32)
    values = rows.shape[1] // kind.block_bytes * kind.block
    result = np.empty((len(rows), values), np.float32)
    if kind.name == BFLOAT16:  # the upper half of a float32
        np.left_shift(rows.view("<u2"), 16, out=result.view(np.uint32), dtype=np.uint32)
        return result
    quants, chunk = _quants(kind.name), max(1, _CHUNK_VALUES // values)
    for first in range(0, len(rows), chunk):
        result[first : first + chunk] = _chunk(quants, rows[first : first + chunk], kind.name, where)
    return result


def _quants(name: str) -> ModuleType:
    try:
        from gguf import quants
    except ImportError as error:
        raise Unavailable(
            f"reading weights of type {name} needs the Python package gguf; run: pip install gguf"
        ) from error
    return quants


def _chunk(quants: ModuleType, rows: np.ndarray, name: str, where: str) -> np.ndarray:
    from gguf import GGMLQuantizationType

    try:
        values: np.ndarray = quants.dequantize(rows, GGMLQuantizationType[name])
    except (NotImplementedError, KeyError) as error:
        raise BadInput(
            f"{where} is of type {name}, which only ggml itself can read; expected F32, F16, Q8_0 ..."
        ) from error
    return values
