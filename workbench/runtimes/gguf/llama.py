"""llama.cpp as llama-cpp-python installs it: the library, made quiet, and language models loaded by it.

A model is loaded here and freed here; what is computed with it stands in `language`. Pointers are plain integers.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import weakref
from functools import cache
from typing import Any

from workbench.core.errors import BadInput, Unavailable, WorkbenchError
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.amx import amx_fault
from workbench.runtimes.gguf.ggml import load_library

OLDEST, NEWEST = (0, 3, 36), (0, 4, 0)  # of llama-cpp-python; tested from the first on, before the second
ERROR = 4  # of ggml_log_level
TEXT = 3  # of llama_model_kv_override_type
FUNCTION = re.compile(r"^(\w+|error loading model\w*): ")  # stands before what a function has to say
CACHES = {"f32": 0, "f16": 1, "q8_0": 8}  # types of keys and values, as ggml_type


@cache
def load_llama() -> Any:
    """The module of llama.cpp's functions; raises `Unavailable` where it is missing, or of an untested version."""
    load_library()
    try:
        import llama_cpp
        from llama_cpp import llama_cpp as functions
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise Unavailable(
            f"llama-cpp-python is installed and does not load: {' '.join(str(error).split())[:200]}"
        ) from error
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
    """Takes what llama.cpp would print, and keeps the first error since it was last asked."""

    def __init__(self) -> None:
        self._first = ""
        self._callback: Any = None  # kept: the library calls it as long as the process lives

    def callback(self, functions: Any) -> Any:
        """The function to give to the library."""

        def take(level: int, text: bytes, _: Any) -> None:
            if level == ERROR and not self._first:
                self._first = text.decode("utf-8", "replace").strip()

        self._callback = functions.llama_log_callback(take)
        return self._callback

    def reason(self) -> str:
        """The error without the names of functions before it; what is kept is dropped."""
        found, self._first = " ".join(self._first.split()), ""
        while FUNCTION.match(found):
            found = FUNCTION.sub("", found)
        return found[:300] or "it does not say why"


_log = _Log()


def take_reason() -> str:
    """Why llama.cpp's last call failed, in its own words."""
    return _log.reason()


class LlamaModel:
    """A model in llama.cpp's hands. Its memory goes back when `close` is called, or nobody refers to it any more."""

    def __init__(self, functions: Any, pointer: int, name: str, keeps: Any = None, notes: tuple[str, ...] = ()):
        self.functions = functions
        self.name = name
        self.notes = notes  # what whoever reads its results should know, a sentence each
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()  # contexts, closed before the model
        self._pointer: int | None = pointer
        # What the model's tensors point into must live as long as the model.
        self._free = weakref.finalize(self, _free, functions, pointer, keeps)

    @property
    def pointer(self) -> int:
        """For llama.cpp's functions; raises `BadInput` after `close`."""
        if self._pointer is None:
            raise BadInput(f"{self.name} is closed; open it again")
        return self._pointer

    @property
    def closed(self) -> bool:
        """Whether it has been freed."""
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


def _free(functions: Any, pointer: int, keeps: Any) -> None:
    functions.llama_model_free(pointer)
    if hasattr(keeps, "close"):
        keeps.close()
    give_back_memory()


def give_back_memory() -> None:
    """Has the C library return freed memory to the system, which glibc keeps tens of megabytes of."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def open_plain(file: GgufFile, rows: int | None = None, vocabulary_only: bool = False) -> LlamaModel:
    """A model from a file of llama.cpp's own, mapped into memory; weights that compute faster repacked are copied.

    Args:
        rows: of the embedding table, where the vocabulary is not wanted, whose reading takes time; None reads it.
        vocabulary_only: leaves the weights alone.

    Raises `BadInput` where llama.cpp does not take the file.
    """
    functions = load_llama()
    parameters = cpu_parameters(functions)
    parameters.vocab_only = vocabulary_only
    fault = "" if vocabulary_only else amx_fault()
    if fault:
        parameters.use_extra_bufts = False
    if rows is not None:
        overrides = _no_vocabulary(functions, file.architecture, rows)
        parameters.kv_overrides = overrides
    take_reason()
    pointer = functions.llama_model_load_from_file(os.fsencode(file.path), parameters)
    if not pointer:
        raise BadInput(f"llama.cpp does not load {file.name}: {take_reason()}")
    return LlamaModel(functions, pointer, file.name, notes=(fault,) if fault else ())


def cpu_parameters(functions: Any) -> Any:
    """Parameters of a model for the processor alone."""
    parameters = functions.llama_model_default_params()
    parameters.n_gpu_layers = 0
    parameters.devices = ctypes.cast(_NO_DEVICES, ctypes.c_void_p)
    return parameters


_NO_DEVICES = (ctypes.c_void_p * 1)()  # a list that ends at once


def _no_vocabulary(functions: Any, architecture: str, rows: int) -> Any:
    """The metadata that make llama.cpp go without a vocabulary, in place of what the file says."""
    overrides = (functions.llama_model_kv_override * 3)()  # the last one, empty, ends the list
    overrides[0].tag, overrides[0].key = TEXT, b"tokenizer.ggml.model"
    overrides[0].value.val_str = b"none"
    overrides[1].tag, overrides[1].key = 0, f"{architecture}.vocab_size".encode()
    overrides[1].value.val_i64 = rows
    return overrides


def failed(what: str) -> WorkbenchError:
    """The error of a call that failed for a reason that is not the user's: memory, mostly."""
    return WorkbenchError(f"llama.cpp failed at {what}: {take_reason()}")
