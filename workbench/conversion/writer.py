"""Executes a plan: writes a GGUF file a few rows at a time; afterwards either the whole file exists or none.

Rows are read, quantised by the gguf package and written, so that no tensor is in memory as a whole.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants

from workbench.conversion.plan import Plan, PlannedTensor, Value, paths_of, total_bytes
from workbench.core.errors import BadInput
from workbench.core.progress import OnProgress
from workbench.formats.quantization import MAX_HALF, check_type, padded, stored_bytes
from workbench.system.atomic_files import check_place, check_room, explained_file_errors, temporary

CHUNK_VALUES = 1 << 20  # values read, quantised and written at a time: 4 MiB in float32
MAX_WHOLE = (1 << 32) - 1  # whole numbers are stored in 32 bits
MAX_FLOAT = float(np.finfo(np.float32).max)
MAX_VALUES = {"f32": MAX_FLOAT, "bf16": 255 * 2.0**120}  # the largest numbers of the types that are not halves


def write(plans: Sequence[Plan], quantization: str, out: Path, on_progress: OnProgress | None = None) -> list[Path]:
    """Writes the files of a model and returns their paths: `out`, and beside it those whose plan has a suffix.

    They are written under temporary names, and renamed when all are complete. Where a path is a link, the file that it
    names is written. Raises `BadInput` if `out` cannot be a file, a type is not supported or cannot represent a value,
    `DiskFull` if the disk is full.
    """
    for plan in plans:
        check_type(quantization, plan.types)
    out = out.absolute()
    check_place(out)
    paths = paths_of(plans, out)
    places = [Path(os.path.realpath(path)) for path in paths]
    for place in places:
        check_place(place)
    check_room(places[0], total_bytes(plans, quantization))
    progress = _Progress(sum(plan.tensor_bytes(quantization) for plan in plans), quantization, on_progress)
    with contextlib.ExitStack() as cleanup:
        unfinished = []
        for plan, place in zip(plans, places, strict=True):
            file = cleanup.enter_context(temporary(place))
            unfinished.append(file)
            with explained_file_errors(place):
                _write_file(plan, quantization, file, progress)
        for file, place in zip(unfinished, places, strict=True):
            with explained_file_errors(place):
                file.replace(place)
    return paths


class _Progress:
    def __init__(self, total: int, quantization: str, on_progress: OnProgress | None):
        self.total, self.written_bytes = max(total, 1), 0
        self.quantization = quantization
        self.on_progress = on_progress

    def add(self, size: int, name: str) -> None:
        self.written_bytes += size
        if self.on_progress is not None:
            written_megabytes, total_megabytes = self.written_bytes / 1e6, self.total / 1e6
            activity = f"writing {self.quantization}: {written_megabytes:.0f} of {total_megabytes:.0f} MB, {name}"
            self.on_progress(min(self.written_bytes / self.total, 1.0), activity)


class _Writer(GGUFWriter):
    """The gguf package's writer with faster bytes: the package writes them one by one, too slow for a tokenizer's
    file.
    """

    def _pack_val(
        self, val: Any, vtype: GGUFValueType, add_vtype: bool, sub_type: GGUFValueType | None = None
    ) -> bytes:
        if vtype == GGUFValueType.ARRAY and isinstance(val, bytes) and val:
            head = self._pack("I", vtype) if add_vtype else b""
            return head + self._pack("I", GGUFValueType.UINT8) + self._pack("Q", len(val)) + val
        packed: bytes = super()._pack_val(val, vtype, add_vtype, sub_type)
        return packed


def _write_file(plan: Plan, quantization: str, path: Path, progress: _Progress) -> None:
    writer = _Writer(path, plan.architecture)
    try:
        for key, value in plan.all_values(quantization).items():
            if key != "general.architecture":  # the gguf writer has added it itself
                _add_value(writer, key, value)
        types = [plan.type_of(tensor, quantization) for tensor in plan.tensors]
        for tensor, stored in zip(plan.tensors, types, strict=True):
            size = stored_bytes(tensor.shape, stored)
            kind = GGMLQuantizationType[stored.upper()]
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), size, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        assert writer.fout is not None
        file = writer.fout[0]
        writer.write_padding(file, file.tell())
        for tensor, stored in zip(plan.tensors, types, strict=True):
            _write_tensor(tensor, stored, file, progress)
        file.flush()
        os.fsync(file.fileno())
    finally:
        for file in writer.fout or ():
            with contextlib.suppress(OSError):  # a full disk, which was reported already
                file.close()


def _add_value(writer: GGUFWriter, key: str, value: Value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        _check_number(key, value, 0, MAX_WHOLE)
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        _check_number(key, value, -MAX_FLOAT, MAX_FLOAT)
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _check_number(key: str, value: float, minimum: float, maximum: float) -> None:
    if not minimum <= value <= maximum:
        raise BadInput(
            f"the file's key {key} would be {value!r:.80}, from the checkpoint's configuration; expected a number from "
            f"{minimum:g} to {maximum:g}"
        )


def _write_tensor(tensor: PlannedTensor, stored: str, file: IO[bytes], progress: _Progress) -> None:
    rows = tensor.shape[0]
    step = max(CHUNK_VALUES // max(math.prod(tensor.shape[1:]), 1), 1)
    kind = GGMLQuantizationType[stored.upper()]
    written_bytes = 0
    for first in range(0, rows, step):
        values = tensor.rows(first, min(first + step, rows))
        _check_values(values, stored, tensor.name)
        if stored == "f16":
            data = values.astype(np.float16)
        else:
            # The scale of a block of numbers below 1e-37 has no reciprocal in float32. In half precision this scale
            # is 0, and so is the block.
            with np.errstate(over="ignore", invalid="ignore"):
                data = values if stored == "f32" else quants.quantize(values, kind)
        content = np.ascontiguousarray(data)
        file.write(content.data)
        written_bytes += content.nbytes
        progress.add(content.nbytes, tensor.name)
    padding = padded(written_bytes) - written_bytes
    file.write(bytes(padding))
    progress.written_bytes += padding


def _check_values(values: np.ndarray, stored: str, name: str) -> None:
    largest = float(np.abs(values).max(initial=0.0))
    if not math.isfinite(largest):
        raise BadInput(f"tensor {name} holds values that are not finite (NaN or infinity); expected numbers")
    if largest > MAX_VALUES.get(stored, MAX_HALF):
        larger = " or ".join(each for each, maximum in MAX_VALUES.items() if largest <= maximum)
        raise BadInput(f"tensor {name} holds {largest:g}, which is beyond {stored}; convert to {larger} instead")
