"""The environment that vLLM's processes inherit: no network, no usage statistics, threads as asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

DEFAULTS = {  # where the user has not set them
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_LOGGING_COLOR": "0",
    # Stages are captured in this one of vLLM's two model runners.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    # Where one device computes, it does so in the engine's own process. vLLM would start another one on a CPU, to set
    # the threads, which is done here; that takes longer and costs 600 MB.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # On a CPU vLLM's own binding keeps a core for itself and takes the first ones, as other engines do too.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
# Without compiled graphs some of vLLM's functions are compiled all the same, when they are first needed: the one that
# ranks a token among all, with the first answer, which then took 18 s in place of 0.6.
UNCOMPILED = {"TORCH_COMPILE_DISABLE": "1"}
THREADS = "OMP_NUM_THREADS"

_changing = threading.Lock()  # the environment is the whole process's


@contextmanager
def environment(threads: int | None, eager: bool = False) -> Iterator[None]:
    """Within the block, processes start with vLLM's environment.

    Args:
        threads: of the computation on a CPU; None: as $OMP_NUM_THREADS says, else one for each core.
        eager: nothing is compiled.
    """
    wanted = {**DEFAULTS, **(UNCOMPILED if eager else {}), THREADS: str(_cores())}
    with _changing:
        before = {name: os.environ.get(name) for name in wanted}
        for name, value in wanted.items():
            os.environ.setdefault(name, value)
        if threads is not None:
            os.environ[THREADS] = str(threads)
        try:
            yield
        finally:
            for name, was in before.items():
                if was is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = was


def running_on_cpu() -> bool:
    """Whether the installed vLLM computes on the processor."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
