"""What a session's process imports before it reads a model, so that sessions that import the same can share that.

`workbench.isolation.preparation` imports it, in a process that sessions are then forked from. This file imports none
of it, and knows no process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SessionSpec
from workbench.families import FAMILIES
from workbench.system.imports import UNUSED

QUIET = "ignore:resource_tracker"  # Python's tracker of shared memory says what it removed after a kill
# Environment variables that libraries read when they use them, not while they are imported. pytest changes the last one
# before every test.
READ_LATE = frozenset(
    {"TMPDIR", "VLLM_RPC_BASE_PATH", "VLLM_CACHE_ROOT", "GRADIO_TEMP_DIR", "XDG_CONFIG_HOME"}
    | {"WORKBENCH_MODELS", "WORKBENCH_MEMORY_GB", "PYTEST_CURRENT_TEST"}
)
# The same, but huggingface_hub reads them when it is imported; a forked process imports that part of it again.
READ_BY_HUB = frozenset({"HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"})


@dataclass(frozen=True)
class Kind:
    """Sessions that import the same packages in the same environment."""

    runtime: str
    language: bool  # whether the model has a language model
    parallel: bool = False  # whether a session takes several calls at once
    threads: int | None = None  # where that is set before the import, as for vLLM; None: as by default
    eager: bool = True  # likewise


def kind_of(spec: SessionSpec) -> Kind | None:
    """Returns the kind of a session; None if nothing is known of its imports.

    That is so for families of other packages, and for sessions that only ask a server.
    """
    family = FAMILIES.get(spec.family)
    if family is None or family.package or spec.server is not None or spec.runtime not in RUNTIMES:
        return None
    if RUNTIMES[spec.runtime].missing() or not family.cell(spec.runtime).module:
        return None
    if RUNTIMES[spec.runtime].parallel:
        threads = spec.settings.threads
        return Kind(spec.runtime, True, True, None if threads == _default_threads() else threads, spec.settings.eager)
    return Kind(spec.runtime, family.has_language_model)


def _default_threads() -> int | None:
    """Returns how many threads an engine has where its settings name no number; None if that cannot be told."""
    named = os.environ.get("OMP_NUM_THREADS")
    if named:
        return int(named) if named.isdecimal() else None
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def unused_packages(runtime: str, outside: bool = False) -> list[str]:
    """Returns the packages that transformers would import for a session of that runtime, which does not need them.

    Without torch, transformers has only tokenizers for the rest of the process. Who needs torch itself can import it
    after the load.

    Args:
        outside: the family comes from another package, so what it needs is not known.
    """
    unused = [] if outside else [UNUSED]
    if runtime in RUNTIMES and RUNTIMES[runtime].opens_gguf:
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would say on stderr that torch is missing
        unused.append("torch")  # takes seconds and 350 MB
    return unused


def session_environment(root: str, parallel: bool) -> dict[str, str]:
    """Returns the environment of a session's process.

    Args:
        root: the folder that holds this project's packages.
        parallel: whether the session takes several calls at once.
    """
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    if parallel:
        environment["PYTHONWARNINGS"] = ",".join([QUIET, *filter(None, [os.environ.get("PYTHONWARNINGS")])])
    return environment
