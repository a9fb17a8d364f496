"""Compares a GGUF file with the checkpoint that it should be made from: its keys, and its tensors to within rounding.

The plan of a conversion says what the file should hold. The file may have any type, and may come from another
converter with the same names, such as llama.cpp's for Qwen2 and Qwen3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.compare.weights.report import WeightReport
from workbench.compare.weights.tensor import WeightDifference, weight_difference
from workbench.compare.weights.token_table import Table, table_difference
from workbench.conversion import LAYOUTS
from workbench.conversion.checkpoint import plans_of
from workbench.conversion.plan import Plan, PlannedTensor, Value
from workbench.core.errors import BadInput
from workbench.core.progress import OnProgress
from workbench.formats.gguf_file import GgufFile, read_own_gguf

KEYS_WITHOUT_EFFECT = (".context_length", ".vocab_size", "padding_token_id", "token_type")  # ends of keys
UNRELATED_KEYS = ("general.", "workbench.")  # beginnings of keys
REQUIRED_KEYS = (".rope.freq_base", ".layer_norm_rms_epsilon")  # ends of keys that readers have another default for
RELATIVE_TOLERANCE = 1e-6  # relative difference of two numbers that are the same in float32
UNUSED_TOKEN = 5  # llama.cpp's type of a token that no text has
MAX_VALUES = 1 << 26  # values of a tensor that is compared as a whole


def check_file(directory: Path, family: str, path: Path, on_progress: OnProgress | None = None) -> WeightReport:
    """Returns what differs between a GGUF file and a checkpoint directory.

    Raises `BadInput` for a file of another architecture, and as `plans_of` does.
    """
    file = read_own_gguf(path)
    plan = _plan_for(directory, family, file)
    planned = {each.name: each for each in plan.tensors}
    differences = []
    for number, tensor in enumerate(plan.tensors):
        if on_progress:
            on_progress(number / len(planned), f"comparing {tensor.name} in {file.name} with the checkpoint's")
        if (different := _tensor_difference(tensor, file, planned)) is not None:
            differences.append(different)
    return WeightReport(file.name, len(planned), tuple(differences), tuple(_keys(plan, file)))


def _plan_for(directory: Path, family: str, file: GgufFile) -> Plan:
    """Returns the plan of a file with this file's architecture, in this project's layout or in another."""
    architectures = []
    for layout in LAYOUTS:
        try:
            plans = plans_of(directory, family, layout)
        except BadInput:
            if layout == LAYOUTS[0]:
                raise
            continue  # the family has no such layout
        for plan in plans:
            if plan.architecture == file.architecture:
                return plan
            architectures.append(plan.architecture)
    expected = " or ".join(dict.fromkeys(architectures))
    raise BadInput(
        f"{file.name} is a file of the architecture {file.architecture!r:.80}; expected {expected}, which "
        f"{directory.name} is converted to"
    )


def _tensor_difference(
    tensor: PlannedTensor, file: GgufFile, planned: Mapping[str, PlannedTensor]
) -> WeightDifference | None:
    info = file.tensors.get(tensor.name)
    if info is None:
        return WeightDifference(tensor.name, "missing", "is missing")
    shape = info.shape
    if math.prod(shape) == math.prod(tensor.shape) and _without_ones(shape) == _without_ones(tensor.shape):
        shape = tensor.shape
    if math.prod(tensor.shape) > MAX_VALUES and shape == tensor.shape and len(shape) == 2:
        return _large_difference(tensor, file, planned)

    def other_tensors() -> Iterator[tuple[str, np.ndarray]]:
        return ((each.name, each.values) for each in _others_of_shape(tensor, planned))

    stored = file.array(tensor.name).reshape(shape)
    difference = weight_difference(tensor.name, tensor.values, stored, info.type, other_tensors)
    file.let_go(info.offset, info.nbytes)
    return difference


def _large_difference(
    tensor: PlannedTensor, file: GgufFile, planned: Mapping[str, PlannedTensor]
) -> WeightDifference | None:
    """Returns the difference of a table of tokens; reads some rows at a time."""
    info = file.tensors[tensor.name]

    def stored(first: int, last: int) -> np.ndarray:
        rows = file.rows(tensor.name, np.arange(first, last))
        file.let_go(info.offset, info.nbytes)
        return rows

    rows, width = tensor.shape
    others = ((each.name, each.rows) for each in _others_of_shape(tensor, planned))
    return table_difference(Table(tensor.name, (rows, width), tensor.rows, stored, info.type), others)


def _others_of_shape(tensor: PlannedTensor, planned: Mapping[str, PlannedTensor]) -> Iterator[PlannedTensor]:
    """Yields the other tensors of the same shape, with which a converter may have exchanged this one."""
    return (each for each in planned.values() if each.shape == tensor.shape and each.name != tensor.name)


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size > 1]


def _keys(plan: Plan, file: GgufFile) -> Iterator[str]:
    """Yields a clause for each key of the model that differs from the checkpoint."""
    for key, expected in plan.values.items():
        if key.startswith(UNRELATED_KEYS) or key.endswith(KEYS_WITHOUT_EFFECT):
            continue
        if key not in file.metadata:
            if key.endswith(REQUIRED_KEYS):
                yield f"{key} is missing; the checkpoint's is {_value_text(expected)}"
            continue
        stored = file.metadata[key]
        if isinstance(expected, (str, bool, int, float)):
            if not _has_same_value(stored, expected):
                yield f"{key} is {_value_text(stored)}, the checkpoint's {_value_text(expected)}"
        elif isinstance(expected, Sequence) and (clause := _array_difference(key, stored, expected, plan.values)):
            yield clause


def _has_same_value(stored: Any, expected: Value) -> bool:
    if isinstance(expected, float) and isinstance(stored, (int, float)):
        return math.isclose(stored, expected, rel_tol=RELATIVE_TOLERANCE)
    return bool(stored == expected)


def _array_difference(key: str, stored: Any, expected: Sequence[Any], values: Mapping[str, Value]) -> str:
    """Returns a clause about the first element that differs; empty if none does."""
    types = values.get("tokenizer.ggml.token_type") if key.endswith(".tokens") else None
    unused_ids = {n for n, kind in enumerate(types) if kind == UNUSED_TOKEN} if isinstance(types, Sequence) else set()
    elements = list(stored) if isinstance(stored, (list, np.ndarray)) else []
    for number, (element, expected_element) in enumerate(zip(elements, expected)):
        if element != expected_element and number not in unused_ids:
            return (
                f"{key} differs from place {number} on: {_value_text(element)}, the checkpoint's "
                f"{_value_text(expected_element)}"
            )
    if len(elements) < len(expected) and not set(range(len(elements), len(expected))) <= unused_ids:
        return f"{key} has {len(elements)} elements, the checkpoint's {len(expected)}"
    return ""


def _value_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value!r:.60}"
