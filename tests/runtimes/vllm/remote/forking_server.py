"""vLLM's own server with a forked engine: a spawned engine would import vLLM again, which takes 12 s.

The server computes in one thread ($OMP_NUM_THREADS is 1), so a forked engine lacks no thread.
"""

from __future__ import annotations

import os
import runpy
from typing import Any

from workbench.runtimes.vllm.engine.forking import METHOD, inspecting_here

SERVER = "vllm.entrypoints.openai.api_server"


def main() -> None:
    """Run the server with the arguments of this program."""
    from vllm.platforms import current_platform

    check = current_platform.check_and_update_config

    def check_and_fork(config: Any) -> None:
        check(config)
        os.environ[METHOD] = "fork"  # vLLM has just chosen spawned processes

    type(current_platform).check_and_update_config = staticmethod(check_and_fork)  # type: ignore[assignment]
    with inspecting_here():
        runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
