"""Runs a module in a process that was forked after vLLM was imported; `tests.support.with_vllm` starts it."""

from __future__ import annotations

import os
import runpy
import sys

from workbench.system.processors import THREADS


def serve(file: int) -> None:
    """Runs the module that the arguments name first; it needs no file."""
    import torch

    os.close(file)
    torch.set_num_threads(int(os.environ[THREADS]))  # PyTorch has read this before the fork
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
