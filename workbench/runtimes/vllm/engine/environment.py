"""Sets the environment of vLLM's processes: no network, no usage statistics, the chosen number of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.system.processors import THREADS, available_processors
from workbench.system.user_cache import user_cache

DEFAULTS = {  # values where the user has set none
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_LOGGING_COLOR": "0",
    # vLLM samples from NaN as from numbers; with their count, an engine's requests end with an error.
    "VLLM_COMPUTE_NANS_IN_LOGITS": "1",
    # Captures use this one of vLLM's two model runners.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    # With one device, the engine computes in its own process. On a CPU vLLM would start a second process to set the
    # threads, which takes longer and costs 600 MB; this file sets the threads instead.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # On a CPU, vLLM's own binding reserves a core for itself and takes the first cores, which other engines take too.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
# Even without compiled graphs, vLLM compiles some functions on first use. One ranks a token among all others; the first
# answer waited for it and took 18 s instead of 0.6.
UNCOMPILED = {"TORCH_COMPILE_DISABLE": "1"}
COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # by default in the temporary folder, where broken-off compilations would stay

_changing = threading.Lock()  # the environment belongs to the whole process


@contextmanager
def environment(threads: int | None, eager: bool = False) -> Iterator[None]:
    """Sets vLLM's environment for processes that start within the block.

    Args:
        threads: of the computation on a CPU; None: $OMP_NUM_THREADS, else one per core.
        eager: compile nothing.
    """
    compiled = UNCOMPILED if eager else {COMPILED: str(user_cache() / "compiled")}
    variables = {**DEFAULTS, **compiled, THREADS: str(available_processors())}
    with _changing:
        before = {name: os.environ.get(name) for name in variables}
        for name, value in variables.items():
            os.environ.setdefault(name, value)
        if threads is not None:
            os.environ[THREADS] = str(threads)
        try:
            yield
        finally:
            for name, previous in before.items():
                if previous is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = previous


def running_on_cpu() -> bool:
    """Returns whether the installed vLLM computes on the CPU."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())
