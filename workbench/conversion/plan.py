"""The plan of a GGUF file: its keys, and its tensors with the sources of their rows.

A family makes the plan of a checkpoint, and the writer executes it for one quantisation. The sizes of the files are
known before, for every quantisation. A plan names tensors and reads none.
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
"""Returns rows from the first to the end (exclusive) of a tensor's first axis, float32; called once per row, in
order.
"""

QUANTIZATION = "workbench.quantization"
FILE_TYPE = "general.file_type"
VERSION = "general.quantization_version"
# Numbers of llama.cpp.
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "bf16": 32}


@dataclass(frozen=True, eq=False)
class PlannedTensor:
    """One tensor of the file."""

    name: str
    shape: tuple[int, ...]  # numpy's order, slowest first
    kind: Kind
    rows: Rows

    @property
    def values(self) -> np.ndarray:
        """All values, float32 of the tensor's shape, read anew."""
        return self.rows(0, self.shape[0]).reshape(self.shape)


TypeRule = Callable[[PlannedTensor, str], str]
"""Returns the type of a tensor in a file of this quantisation."""


def usual_type(tensor: PlannedTensor, quantization: str) -> str:
    """Returns a tensor's type by the rule of this project's files."""
    return stored_type(tensor.kind, tensor.shape, quantization)


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of one file."""

    architecture: str
    values: Mapping[str, Value]
    tensors: Sequence[PlannedTensor]
    type_of: TypeRule = usual_type
    types: Sequence[str] = TYPES  # the types that the file can be written in
    suffix: str = ""  # appended to the stem of the file's name, if a model has several files
    notes: Sequence[str] = ()  # notes about the file for the user, a sentence each
    sources: Sequence[Path] = ()  # the directories of its sources, which may be outside the checkpoint's directory

    def all_values(self, quantization: str) -> dict[str, Value]:
        """Returns the keys of the file, `general.architecture` first, with those that depend on the quantisation."""
        values: dict[str, Value] = {"general.architecture": self.architecture, **self.values}
        if QUANTIZATION in values:
            values[QUANTIZATION] = quantization
        if FILE_TYPE in values:
            values[FILE_TYPE] = FILE_TYPES[quantization]
            values[VERSION] = 2
        return {key: value for key, value in values.items() if not isinstance(value, (str, bytes, Sequence)) or value}

    def tensor_bytes(self, quantization: str) -> int:
        """Returns the bytes of all tensors, each padded to the start of the next one."""
        return sum(padded(stored_bytes(t.shape, self.type_of(t, quantization))) for t in self.tensors)

    def file_bytes(self, quantization: str) -> int:
        """Returns the bytes of the whole file."""
        header = 24 + sum(_value_bytes(key, value) for key, value in self.all_values(quantization).items())
        header += sum(8 + len(t.name.encode()) + 4 + 8 * len(t.shape) + 4 + 8 for t in self.tensors)
        return padded(header) + self.tensor_bytes(quantization)


def _value_bytes(key: str, value: Value) -> int:
    """Returns the bytes of a key and its value: lengths have 8 bytes, types 4, an array states its elements' type."""
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
    """Returns the paths of a model's files: `out`, and beside it those whose plan has a suffix."""
    return [out.with_name(f"{out.stem}{plan.suffix}{out.suffix}") for plan in plans]


def total_bytes(plans: Sequence[Plan], quantization: str) -> int:
    """Returns the bytes of all files of a model."""
    return sum(plan.file_bytes(quantization) for plan in plans)


def estimated_bytes(plans: Sequence[Plan]) -> dict[str, int]:
    """Returns the size of a model's files in every possible type, exact to the byte."""
    common_types = [name for name in TYPES if all(name in plan.types for plan in plans)]
    return {name: total_bytes(plans, name) for name in common_types}


def array_rows(array: np.ndarray) -> Rows:
    """Returns the function that reads rows of a float32 array [rows, ...] in memory."""
    return lambda first, last: array[first:last]
