"""vLLM's distributed state of a worker, without an engine, for tests of networks built on vLLM's layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn


@contextmanager
def worker(meeting: Path, rank: int = 0, size: int = 1) -> Iterator[None]:
    """The state of one of `size` workers that meet at a file."""
    from vllm.config import ParallelConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import (
        destroy_distributed_environment,
        destroy_model_parallel,
        ensure_model_parallel_initialized,
        init_distributed_environment,
    )

    config = VllmConfig(parallel_config=ParallelConfig(tensor_parallel_size=size))
    try:
        with set_current_vllm_config(config):
            init_distributed_environment(size, rank, f"file://{meeting}", rank, "gloo")
            ensure_model_parallel_initialized(size, 1)
            yield
    finally:
        destroy_model_parallel()
        destroy_distributed_environment()


def finish_loading(network: nn.Module) -> None:
    """Process the weights as vLLM's loader does after loading them."""
    for module in network.modules():
        if hasattr(module, "quant_method"):
            module.quant_method.process_weights_after_loading(module)
