"""Checks whether ggml can use the processor's matrix units (AMX) without a fault, before they are used.

A ggml that was compiled with GCC 12.2 crashes when it uses them, and ends its process (see `amx_tile_config.h`). So a
separate process tests each library file once, and the user's cache stores the answer. If the processor has no such
units, no process is started and only /proc/cpuinfo is read.

ggml configures the units once in each thread. A later bfloat16 product of PyTorch in the same thread removes that
configuration, and ggml's next product then ends the process. So no process may do both, and each session has its own
process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from workbench.runtimes.gguf.graphs.amx_product import ANSWERS, WRONG
from workbench.runtimes.gguf.graphs.ggml import library_files
from workbench.runtimes.gguf.graphs.repacking import LAYOUTS, VECTORS
from workbench.system.processor_kind import flags
from workbench.system.user_cache import user_cache

CHILD = ("-m", "workbench.runtimes.gguf.graphs.amx_product")
FLAG = "amx_int8"
SWITCH, OFF = "WORKBENCH_AMX", "off"  # an environment variable and its value, to compute without the units
TIMEOUT_SECONDS = 60.0  # the product takes far less than one
STORED_VERSION = 1  # of the stored answer; a new version tests every library again
# These signals show a fault of the library. Any other end proves nothing about the file, so its answer is not stored.
FAULTS = (signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT)


def layouts() -> tuple[bytes, ...]:
    """Returns the names of the layouts of matrices that ggml may use (`repacking.LAYOUTS`).

    Raises `OSError` if ggml is not installed.
    """
    return (VECTORS,) if switched_off() or amx_fault() else LAYOUTS


def switched_off() -> bool:
    """Returns whether the user wants to compute without the matrix units: `WORKBENCH_AMX=off`."""
    return os.environ.get(SWITCH, "").strip().lower() == OFF


def amx_fault() -> str:
    """Returns a sentence that says why llama.cpp must not use the matrix units and how to repair it; "" if it may use
    them.

    Raises `OSError` if ggml is not installed.
    """
    if FLAG not in flags():  # on other systems than Linux, which lists none, ggml does not use the units
        return ""
    files = library_files()
    path = _answer_path(files[1])
    fault = _read_answer(path)
    if fault is None:
        fault, is_lasting = _try_out(files)
        if is_lasting:
            _store_answer(path, fault)
    return _fault_sentence(fault) if fault else ""


def _fault_sentence(fault: str) -> str:
    return (
        f"llama.cpp runs without the processor's matrix units (AMX), so slower: its installed library {fault} there; "
        'compile it again as docs/troubleshooting.md says under "AMX"'
    )


def _try_out(files: tuple[Path, Path]) -> tuple[str, bool]:
    """Returns (the fault of the libraries with the units, "" for none; whether the answer should be stored)."""
    root = str(Path(__file__).resolve().parents[4])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        process = subprocess.run(
            [sys.executable, *CHILD, *map(str, files)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONPATH": paths},
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"gave no answer for {TIMEOUT_SECONDS:.0f} s", False
    except OSError as error:
        return f"could not be tried out ({error.strerror or error})", False
    if process.returncode < 0:
        return f"ends with signal {-process.returncode}", -process.returncode in FAULTS
    answer = process.stdout.strip()
    if process.returncode or answer not in ANSWERS:
        return "could not be tried out", False
    return ("computes wrong numbers" if answer == WRONG else ""), True


def _answer_path(library: Path) -> Path:
    """Returns the path of the stored answer for a library; the path changes when the library file changes."""
    state = library.stat()
    key = json.dumps([STORED_VERSION, str(library.resolve()), state.st_size, state.st_mtime_ns])
    return user_cache() / "amx" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _read_answer(path: Path) -> str | None:
    """Returns the stored answer; None if there is none or it cannot be read."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    fault = record.get("fault") if isinstance(record, dict) else None
    return fault if isinstance(fault, str) and len(fault) < 200 and fault.isprintable() else None


def _store_answer(path: Path, fault: str) -> None:
    """Stores an answer. If the cache cannot be written, the next session tests again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump({"fault": fault}, file)
        Path(file.name).replace(path)
