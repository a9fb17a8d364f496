"""Opens, uses and closes a session over and over, and writes what memory the process holds after each time.

A process of its own for `tests/runtimes/gguf/test_closing.py`. Arguments: family, GGUF file, how often.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import psutil

from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here


def main() -> None:
    """Writes megabytes: of the open session each time, and of the process when it is closed."""
    family, path, times = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    sound = (np.random.default_rng(1).normal(0, 0.1, 16000).astype(np.float32), 16000)
    process = psutil.Process()
    for _ in range(times):
        session = open_here(SessionSpec("it", family, "gguf", path, Settings(threads=1)))
        if family == "causal_lm":
            session.generate("a", max_new_tokens=3)
        else:
            session.transcribe(sound)
        opened = process.memory_info().rss
        session.close()
        del session
        sys.stdout.write(f"{opened / 1e6} {process.memory_info().rss / 1e6}\n")


if __name__ == "__main__":
    main()
