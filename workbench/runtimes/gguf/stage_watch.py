"""Copies a language model's stages out of a pass of llama.cpp, and overwrites those that a trace substitutes.

llama.cpp calls back for each tensor that it computes. This file knows llama.cpp's names of the tensors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.runtimes.gguf.ggml import TensorStruct, load_library
from workbench.runtimes.gguf.llama import LlamaModel
from workbench.trace.recorder import Recorder
from workbench.trace.spill import release

POOLED = "result_embd_pooled"


class StageWatch:
    """Records the stages `llm.layers.N` and `llm.norm` of one pass over a prompt, at all its positions.

    A long prompt is computed in parts, and each part brings some of a tensor's rows.

    Args:
        layers: of the model.
        shape: of the prompt's embeddings, [positions, hidden].
        others: more stages and the width of their rows, by llama.cpp's name.
        norm: llama.cpp's name of the states after the final norm; in a context with `hidden` it is `POOLED`.
    """

    def __init__(
        self,
        recorder: Recorder,
        layers: int,
        shape: tuple[int, ...],
        others: Mapping[str, tuple[str, int]] = {},
        norm: str = "result_norm",
    ):
        count, width = shape
        hidden = {f"l_out-{layer}": f"llm.layers.{layer}" for layer in range(layers)} | {norm: "llm.norm"}
        stages = {tensor: (stage, width) for tensor, stage in hidden.items()} | dict(others)
        self._rooms = {
            tensor: recorder.room(stage, (count, size))
            for tensor, (stage, size) in stages.items()
            if recorder.wanted(stage)
        }
        given = {tensor: recorder.given(stage, shape) for tensor, stage in hidden.items()}
        self._given = {tensor: rows for tensor, rows in given.items() if rows is not None}
        self._copied, self._rows = dict.fromkeys(self._rooms, 0), dict.fromkeys(self._given, 0)  # rows so far
        self._library = load_library()

    @property
    def wanted(self) -> bool:
        """Whether a stage is recorded."""
        return bool(self._rooms)

    def callback(self, model: LlamaModel) -> Any:
        """Returns the callback for a context of the model."""
        return model.functions.ggml_backend_sched_eval_callback(self._see)

    def _see(self, pointer: int, asks: bool, _: Any) -> bool:
        """Implements llama.cpp's `cb_eval`: returns whether the tensor is wanted, and after its computation whether to
        continue.
        """
        tensor = TensorStruct.from_address(pointer)
        name = tensor.name.decode("utf-8", "replace")
        if name not in self._rooms and name not in self._given:
            return not asks
        if not asks and name in self._rooms:
            begin = self._copied[name]
            self._copied[name] = end = begin + tensor.ne[1]
            values = self._rooms[name][begin:end]
            self._library.backend_tensor_get(pointer, ctypes.c_void_p(values.ctypes.data), 0, values.nbytes)
            release(values)
        if not asks and name in self._given:
            begin = self._rows[name]
            self._rows[name] = end = begin + tensor.ne[1]
            values = np.array(self._given[name][begin:end], dtype=np.float32)
            self._library.backend_tensor_set(pointer, ctypes.c_void_p(values.ctypes.data), 0, values.nbytes)
        return True
