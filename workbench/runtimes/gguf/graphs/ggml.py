"""ggml through ctypes: typed versions of the functions that this project calls, from llama-cpp-python's libraries.

Pointers are plain integers here; `graph` gives them shapes and names. Libraries are loaded by `load_library` only.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
)
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench.core.errors import Unavailable, message_of
from workbench.core.runtimes import RUNTIMES
from workbench.formats.gguf_types import BY_NAME

OLDEST, NEWEST = (0, 25, 0), (0, 26, 0)  # tested from the first version (inclusive) to the second (exclusive)
SUCCESS = 0  # ggml_status
USAGE_WEIGHTS = 1  # of ggml_backend_buffer_usage
_MULTIPLIED = (
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "IQ4_NL", "IQ4_XS",
)  # fmt: skip
TYPES = {name: BY_NAME[name].number for name in _MULTIPLIED}
"""ggml_type by name, of the types that ggml can multiply with."""
F32 = TYPES["F32"]

_P, _N, _S = c_void_p, c_int64, c_size_t
LogCallback = CFUNCTYPE(None, c_int, c_char_p, c_void_p)
# Arguments: the tensor, whether llama.cpp asks or the tensor is computed, data.
EvalCallback = CFUNCTYPE(c_bool, c_void_p, c_bool, c_void_p)
# Arguments: the result, number of the thread, number of threads, data.
CustomCallback = CFUNCTYPE(None, c_void_p, c_int, c_int, c_void_p)


class TensorStruct(Structure):
    """The C struct `ggml_tensor`."""

    _fields_ = (
        ("type", c_int),
        ("buffer", c_void_p),
        ("ne", c_int64 * 4),
        ("nb", c_size_t * 4),
        ("op", c_int),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
        ("data", c_void_p),
        ("name", c_char * 64),
        ("extra", c_void_p),
    )


class InitParams(Structure):
    """The C struct `ggml_init_params`."""

    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


BASE: dict[str, tuple[Any, tuple[Any, ...]]] = {  # functions of libggml-base: result, arguments
    "ggml_version": (c_char_p, ()),
    "ggml_log_set": (None, (LogCallback, _P)),
    "ggml_init": (_P, (InitParams,)),
    "ggml_free": (None, (_P,)),
    "ggml_tensor_overhead": (_S, ()),
    "ggml_graph_overhead_custom": (_S, (_S, c_bool)),
    "ggml_nbytes": (_S, (_P,)),
    "ggml_op_desc": (c_char_p, (_P,)),
    "ggml_get_data": (_P, (_P,)),
    "ggml_is_contiguous": (c_bool, (_P,)),
    "ggml_new_tensor": (_P, (_P, c_int, c_int, POINTER(c_int64))),
    "ggml_set_input": (None, (_P,)),
    "ggml_set_output": (None, (_P,)),
    "ggml_add": (_P, (_P, _P, _P)),
    "ggml_mul": (_P, (_P, _P, _P)),
    "ggml_mul_mat": (_P, (_P, _P, _P)),
    "ggml_sum": (_P, (_P, _P)),
    "ggml_scale": (_P, (_P, _P, c_float)),
    "ggml_norm": (_P, (_P, _P, c_float)),
    "ggml_relu": (_P, (_P, _P)),
    "ggml_silu": (_P, (_P, _P)),
    "ggml_sigmoid": (_P, (_P, _P)),
    "ggml_gelu_erf": (_P, (_P, _P)),
    "ggml_elu": (_P, (_P, _P)),
    "ggml_custom_4d": (_P, (_P, c_int, *(_N,) * 4, POINTER(c_void_p), c_int, CustomCallback, c_int, _P)),
    "ggml_soft_max_ext": (_P, (_P, _P, _P, c_float, c_float)),
    "ggml_flash_attn_ext": (_P, (_P, _P, _P, _P, _P, c_float, c_float, c_float)),
    "ggml_view_2d": (_P, (_P, _P, _N, _N, _S, _S)),
    "ggml_view_3d": (_P, (_P, _P, _N, _N, _N, _S, _S, _S)),
    "ggml_view_4d": (_P, (_P, _P, _N, _N, _N, _N, _S, _S, _S, _S)),
    "ggml_reshape_2d": (_P, (_P, _P, _N, _N)),
    "ggml_reshape_3d": (_P, (_P, _P, _N, _N, _N)),
    "ggml_reshape_4d": (_P, (_P, _P, _N, _N, _N, _N)),
    "ggml_permute": (_P, (_P, _P, c_int, c_int, c_int, c_int)),
    "ggml_cont": (_P, (_P, _P)),
    "ggml_concat": (_P, (_P, _P, _P, c_int)),
    "ggml_pad_ext": (_P, (_P, _P, *(c_int,) * 8)),
    "ggml_im2col": (_P, (_P, _P, _P, *(c_int,) * 6, c_bool, c_int)),
    "ggml_conv_2d_dw_direct": (_P, (_P, _P, _P, *(c_int,) * 6)),
    "ggml_conv_2d_direct": (_P, (_P, _P, _P, *(c_int,) * 6)),
    "ggml_new_graph_custom": (_P, (_P, _S, c_bool)),
    "ggml_build_forward_expand": (None, (_P, _P)),
    "ggml_gallocr_new": (_P, (_P,)),
    "ggml_gallocr_free": (None, (_P,)),
    "ggml_gallocr_reserve": (c_bool, (_P, _P)),
    "ggml_gallocr_alloc_graph": (c_bool, (_P, _P)),
    "ggml_backend_sched_new": (_P, (POINTER(c_void_p), _P, c_int, _S, c_bool, c_bool)),
    "ggml_backend_sched_free": (None, (_P,)),
    "ggml_backend_sched_alloc_graph": (c_bool, (_P, _P)),
    "ggml_backend_sched_set_eval_callback": (None, (_P, EvalCallback, _P)),
    "ggml_backend_sched_graph_compute": (c_int, (_P, _P)),
    "ggml_backend_free": (None, (_P,)),
    "ggml_backend_graph_compute": (c_int, (_P, _P)),
    "ggml_backend_get_default_buffer_type": (_P, (_P,)),
    "ggml_backend_buft_alloc_buffer": (_P, (_P, _S)),
    "ggml_backend_buft_get_alloc_size": (_S, (_P, _P)),
    "ggml_backend_buft_name": (c_char_p, (_P,)),
    "ggml_backend_buffer_get_base": (_P, (_P,)),
    "ggml_backend_buffer_set_usage": (None, (_P, c_int)),
    "ggml_backend_buffer_free": (None, (_P,)),
    "ggml_backend_cpu_buffer_from_ptr": (_P, (_P, _S)),
    "ggml_backend_tensor_alloc": (c_int, (_P, _P, _P)),
    "ggml_backend_tensor_set": (None, (_P, _P, _S, _S)),
    "ggml_backend_tensor_get": (None, (_P, _P, _S, _S)),
    "ggml_backend_reg_dev_get": (_P, (_P, _S)),
    "ggml_backend_reg_get_proc_address": (_P, (_P, c_char_p)),
    "dequantize_row_q8_0": (None, (_P, _P, _N)),
}
CPU: dict[str, tuple[Any, tuple[Any, ...]]] = {  # functions of libggml-cpu
    "ggml_backend_cpu_init": (_P, ()),
    "ggml_backend_cpu_reg": (_P, ()),
    "ggml_backend_cpu_set_n_threads": (None, (_P, c_int)),
    "ggml_cpu_bf16_to_fp32": (None, (_P, _P, _N)),
    "ggml_cpu_fp16_to_fp32": (None, (_P, _P, _N)),
}


class Library:
    """The functions of `BASE` and `CPU`, each under its name without `ggml_`."""

    def __init__(self, base: ctypes.CDLL, cpu: ctypes.CDLL):
        for library, functions in ((base, BASE), (cpu, CPU)):
            for name, (result, arguments) in functions.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name.removeprefix("ggml_"), function)
        # ggml reports every matrix that it repacks on stderr; its errors become exceptions here.
        self._silence = LogCallback(lambda level, text, data: None)
        self.log_set(self._silence, None)

    def __getattr__(self, name: str) -> Any:  # called only for names that are not set
        raise AttributeError(f"ggml_{name} is not bound; name it in BASE or CPU")


@cache
def load_library() -> Library:
    """Loads ggml from llama-cpp-python; raises `Unavailable` if it is missing or of an untested version.

    The wheel has several copies of each library. This function takes the copies that libllama is linked to, because two
    copies in one process would each have a separate state.
    """
    missing = RUNTIMES["gguf"].missing()
    if missing:
        raise Unavailable(missing)
    os.environ.setdefault(
        "GGML_NO_BACKTRACE", "1"
    )  # otherwise ggml runs a debugger on a process that it is about to end
    try:
        base, cpu = (ctypes.CDLL(str(file)) for file in library_files())
        base.ggml_version.restype = c_char_p
        version = base.ggml_version().decode()
    except (OSError, AttributeError) as error:
        raise Unavailable(f"ggml as installed with llama-cpp-python does not load: {message_of(error)}") from error
    check_version(version)
    try:
        return Library(base, cpu)
    except AttributeError as error:
        raise Unavailable(
            f"ggml {version} as installed with llama-cpp-python lacks a function that is needed: {message_of(error)}"
        ) from error


def check_version(version: str) -> None:
    """Raises `Unavailable` for a version of ggml outside the tested range."""
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:3] if part.isdigit())
    if len(numbers) != 3 or not OLDEST <= numbers < NEWEST:
        first, last = (".".join(map(str, edge)) for edge in (OLDEST, NEWEST))
        raise Unavailable(
            f"the installed llama-cpp-python brings ggml {version}; tested is {first} and later, before {last}: "
            "run pip install llama-cpp-python==0.3.36"
        )


def library_files() -> tuple[Path, Path]:
    """Returns the files of libggml-base and libggml-cpu that libllama loads; raises `OSError` if there are none."""
    return _linked("ggml-base"), _linked("ggml-cpu")


def _linked(stem: str) -> Path:
    """Returns the file that libllama loads: of several, the one with the major version in its name."""
    spec = find_spec("llama_cpp")
    folder = Path(str(spec.origin)).parent / "lib" if spec else Path()
    names = (f"lib{stem}.so.0", f"lib{stem}.so", f"lib{stem}.0.dylib", f"lib{stem}.dylib", f"{stem}.dll")
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise OSError(f"there is no {names[1]} in {folder.parent.name}/{folder.name}")
