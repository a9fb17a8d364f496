"""Opens and uses the model files named on stdin, one a line, and says of each what came of it.

A process of its own for `tests/runtimes/gguf/test_damaged_sessions.py`: what a native library does to it, the test
sees. Argument: the family. Writes `begun`, then for each file the bytes that were resident at most while it was used,
and `ran`, `refused SENTENCE` or `raised ERROR`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import numpy as np

from workbench.core.errors import BadInput, Unavailable
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
from workbench.system.memory import PROCESSES, peak_resident_bytes


def tried(path: Path, family: str) -> str:
    """What came of opening the file and using it once."""
    try:
        session = open_here(SessionSpec("damaged", family, "gguf", path, Settings(threads=1)))
        try:
            if family == "causal_lm":
                session.generate("a", max_new_tokens=2)
            elif family == "speechlm":
                heard = {"type": "audio", "audio": (np.sin(np.arange(8000) / 20).astype(np.float32), 16000)}
                limits = {"max_text_tokens": 2, "min_audio_rows": 6, "max_audio_rows": 6, "cfg": 2.0}
                session.converse([{"role": "user", "content": [heard]}], modalities="text_audio", **limits)
            else:
                session.transcribe((np.sin(np.arange(8000) / 20).astype(np.float32), 16000))
        finally:
            session.close()
    except (BadInput, Unavailable) as error:
        return f"refused {error}"
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    return "ran"


def forget_peak() -> None:
    """Lets the peak of this process begin at what is resident now; elsewhere than on Linux it goes on."""
    with contextlib.suppress(OSError):
        (PROCESSES / "self" / "clear_refs").write_text("5")


def main() -> None:
    """Works through stdin."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print, too
    for line in sys.stdin:
        print("begun", file=lines)
        forget_peak()
        came = tried(Path(line.rstrip("\n")), sys.argv[1])
        print(peak_resident_bytes(), " ".join(came.split()), file=lines)


if __name__ == "__main__":
    main()
