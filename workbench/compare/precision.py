"""Finds the precision that a trace was computed in, from its metadata or from its values.

A program that computes in 16 bits often writes its results as float32. All of its values are then representable in the
16-bit type, which does not happen to float32 results by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.compare.presets import half_precision_of
from workbench.trace.order import computation_order, is_aside
from workbench.trace.trace import Trace

AUTO = "auto"
HALVES = ("bfloat16", "float16")
MAX_STAGES = 8  # stages that are looked at
MAX_ROWS = 64  # rows of a stage that are looked at
_OF_WEIGHTS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
MIN_VALUES = 256  # fewer values could be representable by chance


@dataclass(frozen=True)
class Precision:
    """The precision of a candidate, and how it is known."""

    name: str  # float32, bfloat16, float16, or a type of GGUF files
    reason: str

    @property
    def is_half(self) -> bool:
        """Whether it is a 16-bit type of the whole computation."""
        return self.name in HALVES


def precision_of(trace: Trace) -> Precision:
    """Returns the precision that a trace names, else the one that its values show, else float32."""
    meta = trace.meta
    if quantization := meta.get("quantization"):
        return Precision(str(quantization), f"the trace names the quantization {quantization}")
    if meta.get("runtime") == "gguf" and (stored := meta.get("dtype")):  # the type of its weights
        return Precision(_OF_WEIGHTS.get(str(stored), str(stored)), f"the trace names the dtype {stored}")
    if half_precision := half_precision_of(meta):
        return Precision(half_precision, f"the trace names the dtype {meta['dtype']}")
    if isinstance(meta.get("dtype"), str):
        return Precision("float32", f"the trace names the dtype {meta['dtype']}")
    if half_precision := half_precision_of_values(trace):
        return Precision(half_precision, f"every value is a number that {half_precision} has")
    return Precision("float32", "the trace names no precision, and its values are not those of a 16-bit type")


def half_precision_of_values(trace: Trace) -> str | None:
    """Returns the 16-bit type that has every value of a trace's layers, or None.

    Looks at the layers; without any, at all stages but the front end, which programs compute in float32. Final logits
    are left out, as many programs convert them.
    """
    stages = [each for each in computation_order(list(trace)) if not is_aside(each)]
    inside_stages = [
        each for each in stages if not each.startswith(("frontend.", "prompt.", "logits", "answer.", "codec."))
    ]
    layers = [each for each in inside_stages if ".layers." in each] or inside_stages
    step = max(1, len(layers) // MAX_STAGES)
    possible_types, value_count = set(HALVES), 0
    for stage in layers[::step]:
        array = trace[stage]
        if array.dtype.kind != "f" or array.dtype.itemsize > 4:
            continue
        values = np.asarray(array[:MAX_ROWS] if array.ndim else array, dtype=np.float32)
        values = values[np.isfinite(values) & (values != 0)]
        value_count += values.size
        possible_types &= {type_name for type_name in possible_types if are_in(values, type_name)}
        if not possible_types:
            return None
    return (
        next((type_name for type_name in HALVES if type_name in possible_types), None)
        if value_count >= MIN_VALUES
        else None
    )


def are_in(values: np.ndarray, kind: str) -> bool:
    """Returns whether a 16-bit type has every one of these float32 values."""
    if kind == "bfloat16":  # the upper half of a float32
        return not (values.view(np.uint32) & 0xFFFF).any()
    with np.errstate(over="ignore"):
        return bool((values == values.astype(np.float16).astype(np.float32)).all())
