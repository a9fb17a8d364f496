"""Whether ggml's use of the processor's matrix units (AMX) can be trusted, found out before it is used.

A ggml that GCC 12.2 has compiled crashes with them, and takes its process along (see `amx_tile_config.h`). So a process
of its own tries them out once for each file of the library, and what came of it is kept in the user's cache. Where the
processor has no such units, nothing is started and nothing is read but /proc/cpuinfo.
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

from workbench.runtimes.gguf.amx_product import ANSWERS, WRONG
from workbench.runtimes.gguf.ggml import library_files
from workbench.system.user_cache import user_cache

CHILD = ("-m", "workbench.runtimes.gguf.amx_product")
CPU_INFO = Path("/proc/cpuinfo")
FLAG = "amx_int8"
SECONDS = 60.0  # the product takes far less than one
KEPT_VERSION = 1  # of what is kept; a new one has every library tried out again
# What a library's own mistake ends a process with. Whatever else ends it says nothing about the file, and is not kept.
FAULTS = (signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT)


def amx_fault() -> str:
    """Why llama.cpp is to leave the matrix units alone, a sentence with the cure; "" where it may use them.

    Raises `OSError` where ggml is not installed.
    """
    if not _processor_has_amx():
        return ""
    files = library_files()
    place = _place(files[1])
    how = _read(place)
    if how is None:
        how, lasting = _try_out(files)
        if lasting:
            _keep(place, how)
    return _sentence(how) if how else ""


def _processor_has_amx() -> bool:
    """Whether Linux lists the units among the processor's flags. On other systems ggml does without them."""
    try:
        with CPU_INFO.open(encoding="utf-8", errors="replace") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return False
    return FLAG in flags.split()


def _sentence(how: str) -> str:
    return (
        f"llama.cpp runs without the processor's matrix units (AMX), so slower: its installed library {how} there; "
        'compile it again as docs/troubleshooting.md says under "AMX"'
    )


def _try_out(files: tuple[Path, Path]) -> tuple[str, bool]:
    """What the libraries do wrong with the units, "" for nothing; and whether that is a fact about the file."""
    root = str(Path(__file__).resolve().parents[3])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        ended = subprocess.run(
            [sys.executable, *CHILD, *map(str, files)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONPATH": paths},
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"gave no answer for {SECONDS:.0f} s", False
    except OSError as error:
        return f"could not be tried out ({error.strerror or error})", False
    if ended.returncode < 0:
        return f"ends with signal {-ended.returncode}", -ended.returncode in FAULTS
    answer = ended.stdout.strip()
    if ended.returncode or answer not in ANSWERS:
        return "could not be tried out", False
    return ("computes wrong numbers" if answer == WRONG else ""), True


def _place(library: Path) -> Path:
    """Where the answer for a library is kept; another place when the file has changed."""
    state = library.stat()
    key = json.dumps([KEPT_VERSION, str(library.resolve()), state.st_size, state.st_mtime_ns])
    return user_cache() / "amx" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _read(place: Path) -> str | None:
    """What was kept, None where nothing was or it cannot be read."""
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    how = found.get("fault") if isinstance(found, dict) else None
    return how if isinstance(how, str) and len(how) < 200 and how.isprintable() else None


def _keep(place: Path, how: str) -> None:
    """Keeps an answer. Where the cache cannot be written, the next session finds out again."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False, encoding="utf-8") as file:
            json.dump({"fault": how}, file)
        Path(file.name).replace(place)
