"""The process of one conversion: `workbench.artifacts` starts it, so that its caller never imports torch.

Called with JSON of directory and family, and unless only sizes are wanted, of quantization and the names of the file in
every type; or for vLLM, with the directory to write as `served`. It writes a line of JSON for each thing it has to say:
{"fraction", "said"}; at the end {"sizes", "outside", "path"}, for vLLM without sizes, or {"error", "sentence"}.
When its stdin closes, nobody waits any more: it takes what is unfinished away and ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.conversion.checkpoint import plans_of
from workbench.conversion.plan import estimated_bytes
from workbench.core.errors import BadInput, Unavailable, WorkbenchError
from workbench.core.progress import OnProgress
from workbench.formats.quantization import resolve_quantization

SAY_SECONDS = 0.1  # no more often than so


def main() -> int:
    """Runs the conversion; returns the exit status."""
    # Lines are ours alone: what libraries print goes to stderr.
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with_caller, daemon=True).start()
    said = 0.0

    def say(fraction: float, sentence: str) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= SAY_SECONDS:
            said = now
            print(json.dumps({"fraction": fraction, "said": sentence}), file=lines)

    try:
        print(json.dumps(_run(json.loads(sys.argv[1]), say)), file=lines)
    except (BadInput, Unavailable) as error:
        print(json.dumps({"error": type(error).__name__, "sentence": str(error)}), file=lines)
        return error.exit_status
    except Exception as error:
        traceback.print_exc()
        sentence = f"{type(error).__name__}: {' '.join(str(error).split())}"
        print(json.dumps({"error": WorkbenchError.__name__, "sentence": sentence}), file=lines)
        return 1
    return 0


def _run(given: dict[str, Any], say: OnProgress) -> dict[str, Any]:
    directory = Path(given["directory"])
    say(0.0, f"reading {directory.name}")
    if "served" in given:
        return _serve(directory, given["family"], Path(given["served"]), say)
    plans = plans_of(directory, given["family"])
    from workbench.conversion.writer import write  # behind what says which packages are missing

    sources = [source for plan in plans for source in plan.sources]
    found: dict[str, Any] = {"sizes": estimated_bytes(plans), "outside": outside(sources, directory)}
    if "files" in given:
        chosen = resolve_quantization(given["quantization"], found["sizes"])
        path = Path(given["files"][chosen])
        if not path.is_file():  # auto may stand for one that is there
            write(plans, chosen, path, say)
        found["path"] = str(path)
    return found


def _serve(directory: Path, family: str, out: Path, say: OnProgress) -> dict[str, Any]:
    from workbench.conversion.vllm_checkpoint.checkpoint import plan_of

    model = plan_of(directory, family)
    from workbench.conversion.vllm_checkpoint.directory import (
        write_directory,  # behind what says which packages are missing
    )

    write_directory(model, out, say)
    return {"outside": outside(model.sources, directory), "path": str(out)}


def outside(sources: Iterable[Path], directory: Path) -> list[str]:
    """Directories that the model was read from besides its own."""
    resolved = {source.resolve() for source in sources}
    return sorted(str(source) for source in resolved if not source.is_relative_to(directory.resolve()))


def _stop(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _end_with_caller() -> None:
    while os.read(sys.stdin.fileno(), 1024):  # sys.stdin itself is locked while it is read, also when Python ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
