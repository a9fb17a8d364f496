"""The packages that a session's process imports before it reads a model. Sessions with the same packages share them.

`workbench.prepared.process` imports it, in a process that sessions are then forked from. This file imports none
of it, and knows no process.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from workbench.core.runtimes import RUNTIMES
from workbench.system.imports import CLASSICAL_MODELS, MISTRAL_TOKENIZERS
from workbench.system.processors import start_all_threads

# torch makes the folder of this name, by default one of the user's in the temporary folder, as soon as transformers
# imports its compiler, and never removes it.
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
QUIET = "ignore:resource_tracker"  # Python's tracker of shared memory says what it removed after a kill
# Environment variables that libraries read when they use them, not while they are imported. pytest changes its own
# before every test, and an import of ray sets that of the debugger.
READ_LATE = frozenset(
    {"TMPDIR", "VLLM_RPC_BASE_PATH", "VLLM_CACHE_ROOT", "GRADIO_TEMP_DIR", "XDG_CONFIG_HOME", "NO_PROXY"}
    | {"WORKBENCH_MODELS", "WORKBENCH_MEMORY_GB", "PYTEST_CURRENT_TEST", "PYTHONBREAKPOINT", COMPILED}
)
# The same, but huggingface_hub reads them when it is imported; a forked process imports that part of it again.
READ_BY_HUB = frozenset({"HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"})
KEPT_PRODUCTS = "64"  # more than the layers of a model need for one length
_ROOT = str(Path(__file__).resolve().parents[2])  # the folder that holds this project's packages
OF_RAY = "RAY_"  # begins the names of ray's variables, which no session reads


def is_read_early(name: str) -> bool:
    """Returns whether libraries may read an environment variable while a prepared process imports them."""
    return name not in READ_LATE | READ_BY_HUB and not name.startswith(OF_RAY)


@dataclass(frozen=True)
class Kind:
    """A kind of sessions: they import the same packages in the same environment."""

    runtime: str
    language: bool  # whether the model has a language model
    parallel: bool = False  # whether a session takes several calls at once
    threads: int | None = None  # where that is set before the import, as for vLLM; None: as by default
    eager: bool = True  # likewise


def unused_packages(runtime: str, outside: bool = False) -> list[str]:
    """Returns the packages that transformers and gguf would import for a session of that runtime, which does not need
    them.

    Without torch, transformers has only tokenizers for the rest of the process. Who needs torch itself can import it
    after the load.

    Args:
        outside: the family comes from another package, so what it needs is not known.
    """
    known = RUNTIMES.get(runtime)
    packages = []
    if not outside:
        packages += [CLASSICAL_MODELS] if known and known.parallel else [CLASSICAL_MODELS, MISTRAL_TOKENIZERS]
    if known and known.opens_gguf:
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would say on stderr that torch is missing
        packages.append("torch")  # takes seconds and 350 MB
    return packages


def session_environment(parallel: bool) -> dict[str, str]:
    """Returns the environment of a session's process.

    It gives torch's compiler a folder that exists, unless the user names one; else torch makes one and leaves it. It
    makes OpenMP start all threads that a computation asks for.

    Args:
        parallel: whether the session takes several calls at once.
    """
    paths = os.pathsep.join([_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    # The first variable stays: setproctitle finds the place of the title beside it, unless it has changed.
    environment = {**os.environ, "PYTHONPATH": paths}
    environment.setdefault(COMPILED, tempfile.gettempdir())
    # What numpy multiplies here is small: its threads would wait for each other for longer than they compute.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    start_all_threads(environment)
    if parallel:
        environment["PYTHONWARNINGS"] = ",".join([QUIET, *filter(None, [os.environ.get("PYTHONWARNINGS")])])
    else:
        # oneDNN and PyTorch would keep the code of the last 1024 products each, some 0.2 MB for one. Every length of a
        # segment needs its own code, which all layers share, and few segments have the length of an earlier one.
        environment.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", KEPT_PRODUCTS)
        environment.setdefault("LRU_CACHE_CAPACITY", KEPT_PRODUCTS)
    return environment
