"""Forks the process of a vLLM engine where that is safe.

On a CPU vLLM spawns this process, which then imports PyTorch and vLLM once more: half of the time of a start. A forked
process has them already. But it has only the thread that forked, and not the threads that compute in parallel. OpenMP
gives each thread that computes in parallel its own helpers, and a forked thread would wait for them forever. So an
engine is forked only:

- by a process that allows it (see `workbench.system.forks`)
- by a new thread: every start of an engine has its own
- while this thread computes alone
- on a CPU, with one process for the whole engine, and without compiled graphs
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.util import register_after_fork
from typing import Any

from workbench.system.processors import THREADS

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
INSPECTION_FUNCTION = "_run_in_subprocess"  # vLLM's function that inspects a class in another process


@contextmanager
def single_threaded() -> Iterator[None]:
    """Within the block PyTorch computes in one thread; in a process that is forked, in $OMP_NUM_THREADS threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _in_forked_processes(lambda: torch.set_num_threads(int(os.environ[THREADS]))):
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def inspecting_here() -> Iterator[None]:
    """Within the block vLLM inspects the classes of models in this process, and keeps what it finds.

    Otherwise one more process imports vLLM when a class is first used, which takes 12 s. This is to keep CUDA out of
    the present process, so it is only for a CPU. A forked engine has the class from here.
    """
    from vllm.model_executor.models import registry

    original_function = getattr(registry, INSPECTION_FUNCTION, None)
    setattr(registry, INSPECTION_FUNCTION, lambda inspect: inspect())
    try:
        yield
    finally:
        setattr(registry, INSPECTION_FUNCTION, original_function)


class _Child:
    """Stands for the children in Python's register of what to do after a fork."""


@contextmanager
def _in_forked_processes(do: Callable[[], None]) -> Iterator[None]:
    """Calls a function in every process that is forked within the block."""
    child = _Child()
    register_after_fork(child, lambda _: do())
    try:
        yield
    finally:
        del child  # what was registered for it goes with it


@contextmanager
def forked(config: Any) -> Iterator[bool]:
    """Within the block vLLM forks the engine of this configuration if its kind allows that; yields whether it does."""
    if not _can_be_forked(config):
        yield False
        return
    before = os.environ.get(METHOD)
    os.environ[METHOD] = "fork"
    try:
        with _in_forked_processes(_compile_nothing):
            yield True
    finally:
        with contextlib.suppress(KeyError):
            del os.environ[METHOD]
        if before is not None:
            os.environ[METHOD] = before


def _compile_nothing() -> None:
    """Makes PyTorch run functions that are marked for its compiler without compiling them.

    The environment says so too, but PyTorch's compiler reads that only when it is imported, which the parent may have
    done before.
    """
    if "torch._dynamo" in sys.modules:
        import torch

        torch.compiler.set_stance("force_eager")


def _can_be_forked(config: Any) -> bool:
    """Returns whether the engine is one process that computes on the CPU without compiled graphs."""
    return bool(
        config.device_config.device_type == "cpu"
        and config.parallel_config.distributed_executor_backend == "uni"
        and config.model_config.enforce_eager
    )
