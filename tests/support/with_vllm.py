"""Starts programs of the tests that use vLLM: a fork of the process that has imported it, as the import takes 12 s."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support import forked_program
from tests.support.processes import ROOT
from workbench.prepared.kinds import Kind
from workbench.prepared.pool import PREPARED, ForkedProcess
from workbench.system.processors import THREADS

KIND = Kind("vllm", language=True, parallel=True)  # of the sessions on vLLM


def start(
    module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> ForkedProcess | subprocess.Popen[bytes]:
    """Returns a running program, in a process group of its own.

    Args:
        module: what it runs as `python -m` does.
        log: receives all that it prints.
        environment: added to that of the tests. Unless it says otherwise, the program computes in one thread.
    """
    given = {**os.environ, THREADS: "1", **(environment or {})}
    PREPARED.wait_for(KIND, module)
    with log.open("wb") as output:
        words = [module, *arguments]
        forked = PREPARED.fork(KIND, words, given, output.fileno(), forked_program.__name__, output.fileno())
        return forked or subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=given,
            cwd=ROOT,
            start_new_session=True,
        )
