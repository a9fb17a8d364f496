"""What a GGUF file is to hold: its keys, and its tensors with where their rows come from.

A family makes the plan of a checkpoint; the writer carries it out for one quantisation, the sizes of the files are
known for all of them before. A plan names tensors and reads none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.formats.quantization import TYPES, Kind, padded, stored_bytes, stored_type

Value = int | float | bool | str | bytes | Sequence[str] | Sequence[int]
"""Stored as u32, f32, bool, string, and arrays of u8, string, i32. An empty text or array is left out, as gguf does."""

Rows = Callable[[int, int], np.ndarray]
"""Rows first ... behind the last of a tensor's first axis, float32; each is asked for once, in order."""

QUANTIZATION = "workbench.quantization"
FILE_TYPE = "general.file_type"
VERSION = "general.quantization_version"
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "bf16": 32}  # llama.cpp's


@dataclass(frozen=True, eq=False)
class PlannedTensor:
    """One tensor of the file."""

    name: str
    shape: tuple[int, ...]  # numpy's order, slowest first
    kind: Kind
    rows: Rows


TypeRule = Callable[[PlannedTensor, str], str]
"""The type of a tensor in a file of this quantisation."""


def usual_type(tensor: PlannedTensor, quantization: str) -> str:
    """The rule of our own files."""
    return stored_type(tensor.kind, tensor.shape, quantization)


@dataclass(frozen=True, eq=False)
class Plan:
    """One file."""

    architecture: str
    values: Mapping[str, Value]
    tensors: Sequence[PlannedTensor]
    type_of: TypeRule = usual_type
    types: Sequence[str] = TYPES  # that the file can be had in
    suffix: str = ""  # put behind the stem of the file's name, where a model is several files
    notes: Sequence[str] = ()  # what a user should know of the file, a sentence each
    sources: Sequence[Path] = ()  # directories that it is made of, where they may lie outside the checkpoint's own

    def all_values(self, quantization: str) -> dict[str, Value]:
        """The keys of the file, `general.architecture` first; those that depend on the quantisation filled in."""
        values: dict[str, Value] = {"general.architecture": self.architecture, **self.values}
        if QUANTIZATION in values:
            values[QUANTIZATION] = quantization
        if FILE_TYPE in values:
            values[FILE_TYPE] = FILE_TYPES[quantization]
            values[VERSION] = 2
        return {key: value for key, value in values.items() if not isinstance(value, (str, bytes, Sequence)) or value}

    def tensor_bytes(self, quantization: str) -> int:
        """Bytes of all tensors, each padded to where the next one begins."""
        return sum(padded(stored_bytes(t.shape, self.type_of(t, quantization))) for t in self.tensors)

    def file_bytes(self, quantization: str) -> int:
        """Bytes of the whole file."""
        header = 24 + sum(_value_bytes(key, value) for key, value in self.all_values(quantization).items())
        header += sum(8 + len(t.name.encode()) + 4 + 8 * len(t.shape) + 4 + 8 for t in self.tensors)
        return padded(header) + self.tensor_bytes(quantization)


def _value_bytes(key: str, value: Value) -> int:
    """Bytes of a key and its value: lengths are 8 bytes, types 4, an array says its elements' type."""
    size = 8 + len(key.encode()) + 4
    if isinstance(value, bool):
        return size + 1
    if isinstance(value, (int, float)):
        return size + 4
    if isinstance(value, str):
        return size + 8 + len(value.encode())
    if isinstance(value, bytes):
        return size + 12 + len(value)
    return size + 12 + sum(8 + len(each.encode()) if isinstance(each, str) else 4 for each in value)


def paths_of(plans: Sequence[Plan], out: Path) -> list[Path]:
    """Where the files of a model go: `out`, and beside it those whose plan has a suffix."""
    return [out.with_name(f"{out.stem}{plan.suffix}{out.suffix}") for plan in plans]


def total_bytes(plans: Sequence[Plan], quantization: str) -> int:
    """Bytes of all files of a model."""
    return sum(plan.file_bytes(quantization) for plan in plans)


def estimated_bytes(plans: Sequence[Plan]) -> dict[str, int]:
    """The size of a model's files in every type that they can be had in, exact to the byte."""
    offered = [name for name in TYPES if all(name in plan.types for plan in plans)]
    return {name: total_bytes(plans, name) for name in offered}


def array_rows(array: np.ndarray) -> Rows:
    """The rows of a float32 array that is in memory."""
    return lambda first, last: array[first:last]
