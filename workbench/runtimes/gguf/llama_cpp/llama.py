"""llama.cpp from llama-cpp-python: the library with its output silenced, and the language models that it loads.

Models are loaded and freed here; `language` computes with them. Pointers are plain integers.
"""

from __future__ import annotations

import ctypes
import os
import re
import weakref
from functools import cache
from typing import Any

from workbench.core.errors import BadInput, Unavailable, WorkbenchError, message_of
from workbench.formats.gguf_file import GgufFile
from workbench.formats.quantization import ALIGNMENT
from workbench.runtimes.gguf.graphs.amx import amx_fault, switched_off
from workbench.runtimes.gguf.graphs.ggml import load_library
from workbench.runtimes.gguf.graphs.repacking import AMX_LEAST_IN
from workbench.system.memory import give_back_memory

# Versions of llama-cpp-python: tested from the first (inclusive) to the second (exclusive).
OLDEST, NEWEST = (0, 3, 36), (0, 4, 0)
ERROR = 4  # of ggml_log_level
TEXT = 3  # of llama_model_kv_override_type
FUNCTION = re.compile(r"^(\w+|error loading model\w*): ")  # the function's name before the text of an error
CACHES = {"f32": 0, "f16": 1, "q8_0": 8}  # types of the KV cache, as numbers of ggml_type


@cache
def load_llama() -> Any:
    """Returns the module of llama.cpp's functions; raises `Unavailable` if it is missing or of an untested version."""
    load_library()
    try:
        import llama_cpp
        from llama_cpp import llama_cpp as functions
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise Unavailable(f"llama-cpp-python is installed and does not load: {message_of(error)}") from error
    check_version(llama_cpp.__version__)
    functions.llama_log_set(_log.callback(functions), None)
    functions.llama_backend_init()
    return functions


def check_version(version: str) -> None:
    """Raises `Unavailable` for a version of llama-cpp-python outside the tested range."""
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:3] if part.isdigit())
    if len(numbers) != 3 or not OLDEST <= numbers < NEWEST:
        first, last = (".".join(map(str, edge)) for edge in (OLDEST, NEWEST))
        raise Unavailable(
            f"llama-cpp-python {version} is installed; tested is {first} and later, before {last}: "
            f"run pip install llama-cpp-python=={first}"
        )


class _Log:
    """Receives what llama.cpp would print, and stores the first error since it was last read."""

    def __init__(self) -> None:
        self._first = ""
        self._callback: Any = None  # referenced here, because the library calls it as long as the process runs

    def callback(self, functions: Any) -> Any:
        """Returns the callback for the library."""

        def keep_first_error(level: int, text: bytes, _: Any) -> None:
            if level == ERROR and not self._first:
                self._first = text.decode("utf-8", "replace").strip()

        self._callback = functions.llama_log_callback(keep_first_error)
        return self._callback

    def reason(self) -> str:
        """Returns the error without the function names before it, and clears it."""
        reason, self._first = " ".join(self._first.split()), ""
        while FUNCTION.match(reason):
            reason = FUNCTION.sub("", reason)
        return reason[:300] or "it does not say why"


_log = _Log()


def take_reason() -> str:
    """Returns llama.cpp's own reason for the failure of its last call."""
    return _log.reason()


class LlamaModel:
    """A model loaded by llama.cpp. Its memory is freed by `close`, or with the last reference."""

    def __init__(self, functions: Any, pointer: int, name: str, memory_owner: Any = None, notes: tuple[str, ...] = ()):
        self.functions = functions
        self.name = name
        self.notes = notes  # for the reader of results, a sentence each
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()  # contexts, which are closed before the model
        self._pointer: int | None = pointer
        # The memory that the model's tensors point into must live as long as the model.
        self._free = weakref.finalize(self, _free, functions, pointer, memory_owner)

    @property
    def pointer(self) -> int:
        """Returns the pointer for llama.cpp's functions; raises `BadInput` after `close`."""
        if self._pointer is None:
            raise BadInput(f"{self.name} is closed; open it again")
        return self._pointer

    @property
    def is_closed(self) -> bool:
        """Whether the model has been freed."""
        return self._pointer is None

    @property
    def vocabulary(self) -> int:
        """The pointer to its vocabulary."""
        pointer: int = self.functions.llama_model_get_vocab(self.pointer)
        return pointer

    def close(self) -> None:
        """Frees the model and its contexts."""
        self._pointer = None
        for user in list(self.users):
            user.close()
        self._free()


def _free(functions: Any, pointer: int, memory_owner: Any) -> None:
    functions.llama_model_free(pointer)
    if hasattr(memory_owner, "close"):
        memory_owner.close()
    give_back_memory()


def open_plain(file: GgufFile, rows: int | None = None) -> LlamaModel:
    """Opens a model from a file of llama.cpp's own, mapped into memory; weights that compute faster repacked are
    copied, and all weights of a file with an alignment that ggml does not compute with.

    Args:
        rows: of the embedding table, to skip the vocabulary, which takes time to read; None reads the vocabulary.

    Raises `BadInput` if llama.cpp refuses the file.
    """
    functions = load_llama()
    parameters = cpu_parameters(functions)
    if file.alignment % ALIGNMENT:  # ggml ends the process over a mapped tensor that is not aligned
        parameters.load_mode = functions.LLAMA_LOAD_MODE_NONE
    fault = amx_fault()
    if fault or switched_off() or _too_narrow(file):
        parameters.use_extra_bufts = False
    if rows is not None:
        overrides = _no_vocabulary(functions, file.architecture, rows)
        parameters.kv_overrides = overrides
    take_reason()
    pointer = functions.llama_model_load_from_file(os.fsencode(file.path), parameters)
    if not pointer:
        raise BadInput(f"llama.cpp does not load {file.name}: {take_reason()}")
    return LlamaModel(functions, pointer, file.name, notes=(fault,) if fault else ())


def _too_narrow(file: GgufFile) -> bool:
    """Returns whether a matrix has so few inputs that ggml's matrix units compute wrong numbers."""
    return any(len(info.shape) == 2 and info.shape[-1] < AMX_LEAST_IN for info in file.tensors.values())


def cpu_parameters(functions: Any) -> Any:
    """Returns parameters of a model that uses the processor alone."""
    parameters = functions.llama_model_default_params()
    parameters.n_gpu_layers = 0
    parameters.devices = ctypes.cast(_NO_DEVICES, ctypes.c_void_p)
    return parameters


_NO_DEVICES = (ctypes.c_void_p * 1)()  # an empty list, as its first entry is null


def _no_vocabulary(functions: Any, architecture: str, rows: int) -> Any:
    """Returns metadata overrides that make llama.cpp load no vocabulary, whatever the file says."""
    overrides = (functions.llama_model_kv_override * 3)()  # the last one, empty, ends the list
    overrides[0].tag, overrides[0].key = TEXT, b"tokenizer.ggml.model"
    overrides[0].value.val_str = b"none"
    overrides[1].tag, overrides[1].key = 0, f"{architecture}.vocab_size".encode()
    overrides[1].value.val_i64 = rows
    return overrides


def call_error(operation: str) -> WorkbenchError:
    """Returns the error for a call that failed for a reason other than the user's input, mostly lack of memory."""
    return WorkbenchError(f"llama.cpp failed at {operation}: {take_reason()}")
