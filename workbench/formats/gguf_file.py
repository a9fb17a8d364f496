"""Reads GGUF files, version 2 and 3: metadata, the table of tensors, and weights as numbers.

The reader is strict: a file that is damaged, cut short or inconsistent raises `BadInput` when it is opened. Opening
reads only the part before the weights; values are decoded and weights mapped on access. This file knows nothing of
models, and it leaves no file open for the caller to close.
"""

from __future__ import annotations

import math
import mmap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.formats.gguf_header import MAGIC, ByteRange, Header, TensorInfo, read_header, read_span
from workbench.formats.gguf_types import BY_NAME, TEXT, dequantised
from workbench.formats.gguf_values import all_finite
from workbench.formats.quantization import TYPES, possible_types

__all__ = ["GgufFile", "TensorInfo", "is_gguf", "read_gguf", "read_own_gguf"]


class Metadata(Mapping[str, Any]):
    """A mapping from key to value: int, float, bool, str, list of str, or an array of numbers or flags.

    Each access to an array or a long text reads it from the file; raises `BadInput` if that fails.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._path, self._header = path, header

    def __getitem__(self, key: str) -> Any:
        value = self._header.values[key]
        return read_span(self._path, self._header, value, key) if isinstance(value, ByteRange) else value

    def __contains__(self, key: object) -> bool:
        return key in self._header.values

    def __iter__(self) -> Iterator[str]:
        return iter(self._header.values)

    def __len__(self) -> int:
        return len(self._header.values)

    def span(self, key: str) -> ByteRange | None:
        """Returns the position of a value that must be read from the file; None for other values and missing keys."""
        value = self._header.values.get(key)
        return value if isinstance(value, ByteRange) else None


class GgufFile:
    """An open GGUF file; see `read_gguf`."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.metadata = Metadata(path, header)
        self.tensors: Mapping[str, TensorInfo] = header.tensors
        self.alignment = header.alignment  # of each tensor's first byte, in bytes
        self.nbytes = header.bytes
        self._header = header
        self._is_checked = False  # whether `check_finite` has found nothing

    @property
    def name(self) -> str:
        """The file's name without folders, for messages."""
        return self.path.name

    @property
    def architecture(self) -> str:
        """The value of `general.architecture`."""
        return self.text("general.architecture")

    @cached_property
    def quantization(self) -> str:
        """The type of the weights, such as f16: the type of most bytes of the matrices.

        If the file states the type that it was converted to (`workbench.quantization`), that type, unless another
        program has quantised it since then.
        """
        bytes_of: Counter[str] = Counter()
        for info in self.tensors.values():
            bytes_of[info.type.lower()] += info.nbytes if len(info.shape) > 1 else 0
        stated_type = self._header.values.get("workbench.quantization")
        if stated_type in TYPES and {name for name in bytes_of if bytes_of[name]} <= possible_types(stated_type):
            return str(stated_type)
        return max(bytes_of, key=lambda name: bytes_of[name], default="f32")

    def whole(self, key: str, default: int | None = None, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        """Returns a whole number in the range; raises `BadInput` for another value, or for none without a default."""
        value = self._scalar(key, default)
        if type(value) is not int or not minimum <= value <= maximum:
            raise self._unexpected(key, value, f"a whole number from {minimum} to {maximum}")
        return value

    def number(
        self, key: str, default: float | None = None, minimum: float = -math.inf, maximum: float = math.inf
    ) -> float:
        """Returns a finite number in the range, whole or not; raises `BadInput` as `whole` does."""
        value = self._scalar(key, default)
        if type(value) not in (int, float) or not math.isfinite(value) or not minimum <= value <= maximum:
            raise self._unexpected(key, value, f"a number from {minimum:g} to {maximum:g}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Returns true or false; raises `BadInput` as `whole` does."""
        value = self._scalar(key, default)
        if type(value) is not bool:
            raise self._unexpected(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Returns a text; raises `BadInput` as `whole` does."""
        span = self.metadata.span(key)
        value = self.metadata[key] if span and span.count is None else self._scalar(key, default)
        if type(value) is not str:
            raise self._unexpected(key, value, "a text")
        return value

    def texts(self, key: str) -> list[str] | None:
        """Returns an array of texts, or None if the key is missing; raises `BadInput` for another kind of value."""
        if key not in self.metadata:
            return None
        span = self.metadata.span(key)
        if span is None or span.count is None or span.kind != TEXT:
            raise self._unexpected(key, self._header.values[key], "an array of texts")
        elements: list[str] = self.metadata[key]
        return elements

    def numbers(self, key: str) -> np.ndarray | None:
        """Returns an array of numbers or flags, or None if the key is missing.

        Raises `BadInput` for another kind of value.
        """
        if key not in self.metadata:
            return None
        span = self.metadata.span(key)
        if span is None or span.count is None or span.kind == TEXT:
            raise self._unexpected(key, self._header.values[key], "an array of numbers")
        array: np.ndarray = self.metadata[key]
        return array

    def length(self, key: str) -> int | None:
        """Returns the number of elements of an array without reading it; None if there is no array under the key."""
        span = self.metadata.span(key)
        return span.count if span else None

    def expect(self, name: str, shape: Sequence[int]) -> TensorInfo:
        """Returns the tensor.

        Raises `BadInput` if it is missing or has another shape. Leading ones of the shape do not count.
        """
        info, shape = self.tensors.get(name), tuple(shape)
        if info is None:
            raise BadInput(f"{self.name} has no tensor {name}; expected one of shape {shape}")
        if _without_ones(info.shape) != _without_ones(shape):
            raise BadInput(f"tensor {name} in {self.name} has the shape {info.shape}; expected {shape}")
        return info

    def check_finite(self) -> None:
        """Raises `BadInput` that names the first tensor with values that are not finite.

        It reads the whole file, which takes 0.1 to 0.5 s for a GB in memory; another call reads nothing.
        """
        for name, info in () if self._is_checked else self.tensors.items():
            if not all_finite(self.raw(name), info.type, BY_NAME[info.type].block_bytes):
                raise BadInput(f"tensor {name} in {self.name} holds values that are not finite (NaN or infinity)")
            self.let_go(info.offset, info.nbytes)
        self._is_checked = True

    def raw(self, name: str) -> np.ndarray:
        """Returns the stored bytes of a tensor, uint8 [nbytes]: memory-mapped and read-only."""
        info = self._info(name)
        return np.frombuffer(self._mapped, np.uint8, info.nbytes, info.offset)

    def mapped(self) -> np.ndarray:
        """Returns the whole file, uint8 [bytes]: memory-mapped and read-only."""
        return np.frombuffer(self._mapped, np.uint8)

    def let_go(self, offset: int, nbytes: int) -> None:
        """Gives the memory of a mapped range of the file back to the system; the next access reads it again."""
        first, end = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE, (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < end and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED, first, end - first)

    def array(self, name: str) -> np.ndarray:
        """Returns a tensor's values, float32 in its shape. Those of an F32 tensor are memory-mapped and read-only."""
        info = self._info(name)
        return self._dequantised(self._rows(info), info).reshape(info.shape)

    def rows(self, name: str, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Returns some rows of a matrix in the requested order, float32 [numbers, row], without reading the others.

        Raises `BadInput` for a tensor that is not a matrix, and for a row that does not exist.
        """
        info = self._info(name)
        row_numbers = np.asarray(numbers, dtype=np.int64).reshape(-1)
        if len(info.shape) != 2:
            raise BadInput(f"tensor {name} in {self.name} has the shape {info.shape}; expected a matrix")
        outside = row_numbers[(row_numbers < 0) | (row_numbers >= info.shape[0])]
        if outside.size:
            raise BadInput(f"tensor {name} in {self.name} has no row {outside[0]}; it has {info.shape[0]} rows")
        return self._dequantised(self._rows(info)[row_numbers], info)

    def _rows(self, info: TensorInfo) -> np.ndarray:
        count = math.prod(info.shape[:-1])
        return self.raw(info.name).reshape(count, info.nbytes // count)

    def _dequantised(self, rows: np.ndarray, info: TensorInfo) -> np.ndarray:
        return dequantised(rows, info.type, f"tensor {info.name} in {self.name}")

    def _info(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            raise BadInput(f"{self.name} has no tensor {name}")
        return info

    @cached_property
    def _mapped(self) -> mmap.mmap:
        """The whole file, memory-mapped; it stays mapped as long as an array of it is in use."""
        try:
            with self.path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise BadInput(f"the GGUF file {self.name} cannot be mapped: {error}") from error
        if len(mapped) != self.nbytes:
            raise BadInput(f"{self.name} has been written to since it was opened; open it again")
        return mapped

    def _scalar(self, key: str, default: Any) -> Any:
        value = self._header.values.get(key, default)
        if value is None:
            raise BadInput(f"{self.name} has no metadata key {key}")
        return value

    def _unexpected(self, key: str, value: Any, expected: str) -> BadInput:
        value_text = f"{value!r:.80}"
        if isinstance(value, ByteRange):
            value_text = "a long text" if value.count is None else f"an array of {value.count}"
        return BadInput(f"{key} in {self.name} is {value_text}; expected {expected}")


def read_gguf(path: str | Path) -> GgufFile:
    """Opens a GGUF file; raises `BadInput` if it does not exist, is damaged or is cut short."""
    path = Path(path)
    if not path.is_file():
        raise BadInput(f"there is no GGUF file {path}")
    return GgufFile(path, read_header(path))


def read_own_gguf(path: str | Path) -> GgufFile:
    """Opens a GGUF file of the user as `read_gguf` does; the error for a damaged file says where the file is."""
    try:
        return read_gguf(path)
    except BadInput as error:
        where = str(Path(path).absolute())
        raise error if where in str(error) else BadInput(f"{error} (the file is {where})") from error


def is_gguf(path: str | Path) -> bool:
    """Returns whether this is a file that begins like a GGUF file, damaged or not. Never raises."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape
