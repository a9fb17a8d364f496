"""Loads the language model from a file that also holds other networks, which llama.cpp would refuse as a whole.

llama.cpp gets only the metadata of the language model, and asks for each tensor by name. As with a file that it maps
itself, tensors are not copied: they point into the file's mapped pages, except those that compute faster repacked.
llama.cpp also asks for its optional tensors; these are created with values that change nothing.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile, TensorInfo
from workbench.formats.gguf_types import BY_NAME
from workbench.formats.quantization import ALIGNMENT, padded
from workbench.runtimes.gguf.files.language_file import (
    EMBEDDINGS,
    OUTPUT,
    language_architecture,
    language_tensors,
    read_dimensions,
)
from workbench.runtimes.gguf.graphs.amx import layouts
from workbench.runtimes.gguf.graphs.ggml import USAGE_WEIGHTS, Library, TensorStruct, load_library
from workbench.runtimes.gguf.graphs.repacking import Repacking
from workbench.runtimes.gguf.llama_cpp.llama import LlamaModel, cpu_parameters, load_llama, take_reason

NEUTRAL_VALUES = {".scale": 1.0, ".input_scale": 1.0, ".bias": 0.0}  # optional tensors by the end of their name
UNUSED_TENSORS = ("cls.output.weight",)
TABLES = (EMBEDDINGS, OUTPUT)


class _InitParameters(ctypes.Structure):
    """The C struct `gguf_init_params`."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def open_half(file: GgufFile, tables: bool = True) -> LlamaModel:
    """Opens the language model of a file with two networks; raises `BadInput` if its tensors contradict its keys.

    Args:
        tables: load embedding table and output matrix. Without them the model takes embeddings and gives hidden states
            (`Context` with `hidden`). Tables of one row of zeros then stand for both, because llama.cpp does not load a
            model without them.
    """
    functions, ggml = load_llama(), load_library()
    names = language_tensors(file, read_dimensions(file))
    sources = {name: file.raw(name) for name in names if tables or name not in TABLES}
    if tables and OUTPUT not in sources:  # shared weights: llama.cpp would make a second tensor
        sources[OUTPUT] = sources[EMBEDDINGS]
    source = _TensorSource(ggml, sources, {} if tables else dict.fromkeys(TABLES, 0.0))
    header = metadata_of(file, names, tables)
    metadata = _read_metadata(functions, header)
    callback = functions.llama_model_set_tensor_data_t(source.take)
    take_reason()
    try:
        pointer = functions.llama_model_init_from_user(metadata, callback, None, cpu_parameters(functions))
    finally:
        functions._lib.gguf_free(ctypes.c_void_p(metadata))
    if not pointer:
        source.close()
        raise BadInput(f"llama.cpp does not load the language half of {file.name}: {take_reason()}")
    model = LlamaModel(functions, pointer, file.name, source)
    if source.fault:
        model.close()
        raise BadInput(f"{file.name} {source.fault}")
    return model


def metadata_of(file: GgufFile, names: Sequence[str], tables: bool = True) -> bytes:
    """Returns the head of a GGUF file with the language model alone: its keys, no vocabulary, and the table of its
    tensors.

    Args:
        tables: with embedding table and output matrix; otherwise tables of one row stand for both.
    """
    kind = language_architecture(file)
    values: dict[str, Any] = {
        "general.architecture": kind,
        "tokenizer.ggml.model": "none",
        f"{kind}.vocab_size": file.tensors[EMBEDDINGS].shape[0] if tables else 1,
    }
    for key in file.metadata:
        if key.startswith(f"{kind}.") and key not in values and isinstance(file.metadata[key], (bool, int, float, str)):
            values[key] = file.metadata[key]
    table = [(name, file.tensors[name]) for name in names if tables or name not in TABLES]
    if not tables:
        width = file.tensors[EMBEDDINGS].shape[1]
        table += [(name, TensorInfo(name, (1, width), "F32", 0, 4 * width)) for name in TABLES]
    elif OUTPUT not in names:
        table.append((OUTPUT, file.tensors[EMBEDDINGS]))
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(table), len(values))]
    parts += [_text(key) + _value(value) for key, value in values.items()]
    offset = 0
    for name, info in table:
        shape = info.shape[::-1]
        parts.append(_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        parts.append(struct.pack("<IQ", BY_NAME[info.type].number, offset))
        offset += padded(info.nbytes)
    head = b"".join(parts)
    return head + bytes(-len(head) % ALIGNMENT)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: bool | int | float | str) -> bytes:
    """Returns the bytes of a metadata value after its type; whole numbers are uint32, as llama.cpp requires."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", 8) + _text(value)


def _read_metadata(functions: Any, header: bytes) -> int:
    read = functions._lib.gguf_init_from_buffer  # from the copy of ggml that llama.cpp is linked to
    read.restype, read.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_size_t, _InitParameters)
    address = read(header, len(header), _InitParameters(True, None))
    if not address:
        raise BadInput(f"llama.cpp does not read the metadata of the language half: {take_reason()}")
    pointer: int = address
    return pointer


class _TensorSource:
    """The tensors that llama.cpp asks for, by name; lives as long as the model."""

    def __init__(self, ggml: Library, sources: Mapping[str, np.ndarray], constants: Mapping[str, float] = {}):
        self.fault = ""  # the first mismatch, as the end of a sentence about the file
        self._constants = constants  # the value of all elements of other float32 tensors
        self._ggml = ggml
        self._sources = sources
        first = min(source.ctypes.data for source in sources.values()) // ALIGNMENT * ALIGNMENT
        last = max(source.ctypes.data + source.nbytes for source in sources.values())
        self._mapped = ggml.backend_cpu_buffer_from_ptr(first, last - first)
        ggml.backend_buffer_set_usage(self._mapped, USAGE_WEIGHTS)
        self._buffers = [self._mapped]
        self._repacking = Repacking(ggml, layouts(), halves=True)  # as llama.cpp does with a file of its own

    def take(self, pointer: int, _: Any) -> None:
        """Fills a tensor with its values; called by llama.cpp while it loads."""
        tensor = TensorStruct.from_address(pointer)
        name, nbytes = tensor.name.decode(), self._ggml.nbytes(pointer)
        source = self._sources.get(name)
        if source is None:
            self._fill(pointer, name, nbytes)
        elif source.nbytes != nbytes:
            self.fault = self.fault or f"has {source.nbytes} bytes of tensor {name}; llama.cpp expects {nbytes}"
        elif name != EMBEDDINGS and tensor.ne[1] > 1 and self._repacked(pointer, source):
            return
        elif source.ctypes.data % ALIGNMENT == 0:
            tensor.buffer, tensor.data = self._mapped, source.ctypes.data
        else:
            self._ggml.backend_tensor_set(pointer, source.ctypes.data, 0, nbytes)

    def _repacked(self, pointer: int, source: np.ndarray) -> bool:
        """Puts a matrix into the processor's own layout, if ggml has one for its type and shape."""
        buffer = self._repacking.buffer(pointer, source.ctypes.data, source.nbytes)
        if buffer:
            self._buffers.append(buffer)
        return bool(buffer)

    def _fill(self, pointer: int, name: str, nbytes: int) -> None:
        constant = self._constants.get(
            name, next((value for end, value in NEUTRAL_VALUES.items() if name.endswith(end)), None)
        )
        if constant is None:
            if name not in UNUSED_TENSORS:
                self.fault = self.fault or f"has no tensor {name}, which llama.cpp asks for"
            return
        values = np.full(nbytes // 4, constant, dtype=np.float32)
        self._ggml.backend_tensor_set(pointer, values.ctypes.data, 0, nbytes)

    def close(self) -> None:
        """Frees the repacked matrices, and drops the references to mapped pages."""
        for buffer in self._buffers:
            self._ggml.backend_buffer_free(buffer)
        self._buffers.clear()
        self._sources = {}
