"""Opens a session in this process, with the module of its family on its runtime."""

from __future__ import annotations

import time
from importlib import import_module

from workbench.audio.domain import read_domain
from workbench.core.errors import BadInput, Unavailable
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import (
    SessionSpec,
)
from workbench.families import FAMILIES
from workbench.formats.weight_files import file_bytes
from workbench.session.protocols import Doubts, Session, TakesSegments
from workbench.system.processors import check_thread_limit, default_threads

REMOTE = "workbench.runtimes.vllm.remote"  # the module that opens a model on a server, of any family

REFERENCE_ARITHMETIC = "workbench.runtimes.pytorch.reference_arithmetic"  # opens sessions for reference traces


def why_not(family: str, runtime: str, server: bool = False) -> str | None:
    """Returns why the family cannot run on that runtime here; None if it can. Raises `BadInput` for unknown names.

    Args:
        server: whether another machine's runtime is meant, which needs nothing to be installed here.
    """
    check_runtime(runtime)
    if family not in FAMILIES:
        raise BadInput(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
    cell = FAMILIES[family].cell(runtime)
    if cell.module is None or server:
        return cell.reason
    return RUNTIMES[runtime].missing(FAMILIES[family].has_language_model)


def check_runtime(runtime: str) -> None:
    """Raises `BadInput` for a name that no runtime has."""
    if not isinstance(runtime, str) or runtime not in RUNTIMES:
        raise BadInput(f"there is no runtime {runtime!r:.80}; expected one of {', '.join(RUNTIMES)}")


def open_alone(spec: SessionSpec) -> Session:
    """Opens a session like `open_here`, and sets the threads of this process, which must have no other work."""
    session = open_here(spec)
    if spec.runtime == "pytorch" and spec.settings.threads is None and spec.settings.device == "cpu":
        import torch

        torch.set_num_threads(default_threads(file_bytes(spec.checkpoint)))
    return session


def open_here(spec: SessionSpec) -> Session:
    """Loads the model in this process, or checks that its server answers.

    Raises `Unavailable` for an empty cell and for a server that does not answer, and `BadInput` for a bad checkpoint
    and for more threads than `$OMP_THREAD_LIMIT`.
    """
    if spec.family not in FAMILIES:
        raise BadInput(
            f"the session's process finds no family {spec.family!r}; install the package that has it, or put its "
            "folder on PYTHONPATH"
        )
    reason = why_not(spec.family, spec.runtime, spec.server is not None)
    if reason:
        raise Unavailable(reason)
    check_thread_limit(spec.settings.threads)
    start = time.perf_counter()
    if spec.server is not None:
        session: Session = import_module(REMOTE).open_session(spec)
    else:
        module = import_module(str(FAMILIES[spec.family].cell(spec.runtime).module))
        if spec.settings.weights or spec.settings.summation:
            reference_arithmetic = import_module(REFERENCE_ARITHMETIC)
            session = reference_arithmetic.open_session(module.open_session, spec.checkpoint, spec.name, spec.settings)
        else:
            session = module.open_session(spec.checkpoint, spec.name, spec.settings)
    if spec.domain is not None and isinstance(session, Doubts):
        session.domain = read_domain(spec.domain)
    if spec.longest_segment_seconds is not None and isinstance(session, TakesSegments):
        session.longest_segment_seconds = spec.longest_segment_seconds
    session.load_seconds = time.perf_counter() - start
    return session
