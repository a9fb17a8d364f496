"""Copies a language model's stages out of a pass of llama.cpp, and overwrites those that a trace substitutes.

llama.cpp calls back for each tensor that it computes; `language_stages` has the names of these tensors.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.files.language_file import language_architecture, read_dimensions
from workbench.runtimes.gguf.graphs.ggml import TensorStruct, load_library
from workbench.runtimes.gguf.llama_cpp.language_stages import WEIGHTS, InnerStage, inner_stages, label
from workbench.runtimes.gguf.llama_cpp.llama import LlamaModel
from workbench.trace.inside import check_weights
from workbench.trace.recorder import Recorder
from workbench.trace.spill import release

POOLED = "result_embd_pooled"


@dataclass(frozen=True)
class _WatchedStage:
    """A stage that is recorded, substituted or both."""

    row: tuple[int, ...]  # shape of one row; for weights, the number of heads
    array: np.ndarray | None
    substitute: np.ndarray | None
    paired: bool = False
    weights: bool = False


class StageWatch:
    """Records the stages `llm.layers.N`, those inside the layers, and `llm.norm` of one pass over a prompt, at all its
    positions.

    llama.cpp computes a long prompt in parts, and each part gives some of a tensor's rows.

    Args:
        file: of the model.
        shape: of the prompt's embeddings, [positions, hidden].
        further_tensors: more stages and the width of their rows, by llama.cpp's name.
        norm: llama.cpp's name of the states after the final norm; in a context with `hidden` it is `POOLED`.
        weights: whether llama.cpp computes attention weights in this pass.
        keys: positions in the cache after a decoding step; by default those of the prompt.

    Raises `BadInput` if attention weights are wanted that are too many to show.
    """

    def __init__(
        self,
        recorder: Recorder,
        file: GgufFile,
        shape: tuple[int, ...],
        further_tensors: Mapping[str, tuple[str, int]] = {},
        norm: str = "result_norm",
        weights: bool = True,
        keys: int | None = None,
    ):
        count, width = shape
        sizes, kind = read_dimensions(file), language_architecture(file)
        stages, inner_count = [], 0
        for layer in range(sizes.layers):
            for each in inner_stages(layer, sizes, kind):
                if recorder.needs(each.stage) and (weights or not each.stage.endswith(WEIGHTS)):
                    stages.append(each)
                    inner_count += 1
            stages.append(InnerStage(f"llm.layers.{layer}", (f"l_out-{layer}",), (width,)))
        stages.append(InnerStage("llm.norm", (norm,), (width,)))
        stages += [InnerStage(stage, (name,), (size,)) for name, (stage, size) in further_tensors.items()]
        self._looks_inside = bool(inner_count)
        self._stages = dict(_watched_stages(stages, recorder, count, count if keys is None else keys))
        self._rows: dict[tuple[str, str], int] = {}  # rows so far, by label and operation
        self._library = load_library()

    @property
    def is_recording(self) -> bool:
        """Whether a stage is recorded."""
        return any(each.array is not None for each in self._stages.values())

    @property
    def shows_weights(self) -> bool:
        """Whether attention weights are recorded."""
        return any(each.weights for each in self._stages.values())

    def callback(self, model: LlamaModel) -> Any:
        """Returns the callback for a context of the model."""
        return model.functions.ggml_backend_sched_eval_callback(self.see)

    def see(self, pointer: int, ask: bool, _: Any) -> bool:
        """Implements llama.cpp's `cb_eval`: returns whether the tensor is wanted, and after its computation whether to
        continue.
        """
        tensor = TensorStruct.from_address(pointer)
        name, operation = tensor.name.decode("utf-8", "replace"), ""
        if self._looks_inside:
            name, operation = label(self._library, pointer, tensor, name)
        watched_stage = self._stages.get(name)
        if watched_stage is None:
            return not ask
        if not ask:
            begin = self._rows.get((name, operation), 0)
            move = self._move_weights if watched_stage.weights else self._move_rows
            self._rows[name, operation] = begin + move(pointer, tensor, watched_stage, begin)
        return True

    def _move_rows(self, pointer: int, tensor: TensorStruct, watched_stage: _WatchedStage, begin: int) -> int:
        """Copies the rows of a tensor to their place in the stage, and overwrites them; returns their number."""
        count = math.prod(tensor.ne) // math.prod(watched_stage.row)
        if watched_stage.array is not None:
            values = watched_stage.array[begin : begin + count]
            if watched_stage.paired:
                values[...] = split_pairs(self._read(pointer, np.empty(values.shape, dtype=np.float32)))
            else:
                self._read(pointer, values)
            release(values)
        if watched_stage.substitute is not None:
            substitute = np.array(watched_stage.substitute[begin : begin + count], dtype=np.float32)
            substitute = np.ascontiguousarray(_joined_pairs(substitute) if watched_stage.paired else substitute)
            self._library.backend_tensor_set(pointer, ctypes.c_void_p(substitute.ctypes.data), 0, substitute.nbytes)
        return count

    def _move_weights(self, pointer: int, tensor: TensorStruct, watched_stage: _WatchedStage, begin: int) -> int:
        """Copies the weights of some rows, one head at a time; returns the number of rows.

        llama.cpp computes the weights of all keys so far and of some more positions, which are 0.
        """
        assert watched_stage.array is not None
        width, count = tensor.ne[0], tensor.ne[1]
        for head, target in enumerate(watched_stage.array):
            values = self._read(pointer, np.empty((count, width), dtype=np.float32), head * tensor.nb[2])
            keys = min(width, target.shape[1])
            target[begin : begin + count, :keys] = values[:, :keys]
        release(watched_stage.array)
        return count

    def _read(self, pointer: int, values: np.ndarray, first: int = 0) -> np.ndarray:
        """Fills a contiguous array with the tensor's values from byte `first` on, and returns it."""
        self._library.backend_tensor_get(pointer, ctypes.c_void_p(values.ctypes.data), first, values.nbytes)
        return values


def _watched_stages(
    stages: Iterable[InnerStage], recorder: Recorder, count: int, keys: int
) -> Iterable[tuple[str, _WatchedStage]]:
    """Yields label and stage for those that are recorded or substituted."""
    for each in stages:
        weights = each.stage.endswith(WEIGHTS)
        shape = (*each.row, count, keys) if weights else (count, *each.row)
        recorded = recorder.wanted(each.stage)
        substitute = None if weights else recorder.given(each.stage, shape)
        if not recorded and substitute is None:
            continue
        if weights:
            check_weights(each.stage, *shape)
        array = recorder.allocate(each.stage, shape) if recorded else None
        for name in each.labels:
            yield name, _WatchedStage(each.row, array, substitute, each.paired, weights)


def split_pairs(rows: np.ndarray) -> np.ndarray:
    """Returns [n, heads, width] with the even channels of each head in its first half, the odd ones in the second."""
    count, heads, width = rows.shape
    return rows.reshape(count, heads, width // 2, 2).swapaxes(2, 3).reshape(rows.shape)


def _joined_pairs(rows: np.ndarray) -> np.ndarray:
    """Reverses `split_pairs`."""
    count, heads, width = rows.shape
    return rows.reshape(count, heads, 2, width // 2).swapaxes(2, 3).reshape(rows.shape)
