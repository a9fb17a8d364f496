"""The process of one conversion: `workbench.artifacts` starts it, so that its caller never imports torch.

Its input is JSON with the directory and the family. A conversion to GGUF also gives the quantizations to write and the
names of the file in every type; a request for sizes only omits them. A conversion for vLLM gives the directory to write
as `served`, and a comparison gives the GGUF file as `checked`. A request for linear layers gives the stages behind them
as `layers`, and the file of arrays to write as `out`. The process writes lines of JSON: {"fraction", "sentence"} for
progress; at the end {"sizes", "outside", "paths"} (for vLLM {"outside", "path"}; for a comparison {"outside",
"report"}; for layers {"outside"}), or {"error", "sentence"}. When its stdin closes, the caller has gone: the process
deletes unfinished files and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from workbench.conversion.checkpoint import plans_of
from workbench.conversion.plan import Plan, estimated_bytes
from workbench.core.errors import BadInput, Unavailable, WorkbenchError, named_message_of
from workbench.core.progress import OnProgress
from workbench.families import FAMILIES
from workbench.formats.quantization import resolve_quantization
from workbench.system.imports import CLASSICAL_MODELS, MISTRAL_TOKENIZERS, hidden_packages

REPORT_SECONDS = 0.1  # the shortest time between two lines of progress


def main() -> int:
    """Runs the conversion; returns the exit status."""
    # Only JSON lines go to stdout: output of libraries goes to stderr.
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with_caller, daemon=True).start()
    last_report = 0.0
    waiting = ""  # the latest line, until it is written

    def report_progress(fraction: float, sentence: str) -> None:
        nonlocal last_report, waiting
        waiting = json.dumps({"fraction": fraction, "sentence": sentence}) + "\n"
        current_time = time.monotonic()
        if current_time - last_report >= REPORT_SECONDS:
            last_report = current_time
            lines.write(waiting)
            waiting = ""

    try:
        request = json.loads(sys.argv[1])
        family = FAMILIES.get(request["family"])
        is_own = family is not None and not family.package
        with hidden_packages(*([CLASSICAL_MODELS, MISTRAL_TOKENIZERS] if is_own else [])):
            result = _run(request, report_progress)
        lines.write(waiting)  # a quick conversion reports its last step too
        print(json.dumps(result), file=lines)
    except (BadInput, Unavailable) as error:
        print(json.dumps({"error": type(error).__name__, "sentence": str(error)}), file=lines)
        return error.exit_status
    except Exception as error:
        traceback.print_exc()
        print(json.dumps({"error": WorkbenchError.__name__, "sentence": named_message_of(error)}), file=lines)
        return 1
    return 0


def serve(file: int) -> None:
    """Runs the conversion in a forked process; its caller is at the other end of the socket `file`."""
    for standard in (sys.stdin, sys.stdout):
        os.dup2(file, standard.fileno())
    os.close(file)
    run_and_exit()


def run_and_exit() -> NoReturn:
    """Runs the conversion, and ends the process at once: with torch loaded, Python takes half a second to end."""
    try:
        status = main()
    except SystemExit as end:  # the caller has gone; unfinished files are deleted
        status = int(end.code or 0)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def _run(request: dict[str, Any], report_progress: OnProgress) -> dict[str, Any]:
    directory = Path(request["directory"])
    report_progress(0.0, f"reading {directory.name}")
    if "served" in request:
        return _write_vllm_directory(directory, request["family"], Path(request["served"]), report_progress)
    if "checked" in request:
        from workbench.conversion.check import check_file

        return {
            "outside": [],
            "report": check_file(directory, request["family"], Path(request["checked"]), report_progress).to_dict(),
        }
    if "layers" in request:
        return _write_layers(directory, request["family"], request["layers"], Path(request["out"]))
    plans = plans_of(directory, request["family"])
    sources = [source for plan in plans for source in plan.sources]
    answer: dict[str, Any] = {"sizes": estimated_bytes(plans), "outside": directories_outside(sources, directory)}
    if "files" in request:
        types = [resolve_quantization(each, answer["sizes"]) for each in request["quantizations"]]
        answer["paths"] = [request["files"][each] for each in types]
        _write_gguf(plans, dict(zip(types, map(Path, answer["paths"]), strict=True)), report_progress)
    return answer


def _write_gguf(plans: Sequence[Plan], files: Mapping[str, Path], report_progress: OnProgress) -> None:
    """Writes the files that do not exist yet, by type."""
    from workbench.conversion.writer import write  # after the check for missing packages

    missing = {name: path for name, path in files.items() if not path.is_file()}
    for number, (name, path) in enumerate(missing.items()):

        def report_share(fraction: float, sentence: str, number: int = number) -> None:
            report_progress((number + fraction) / len(missing), sentence)

        write(plans, name, path, report_share)


def _write_vllm_directory(directory: Path, family: str, out: Path, report_progress: OnProgress) -> dict[str, Any]:
    from workbench.conversion.vllm_checkpoint.checkpoint import plan_of

    model = plan_of(directory, family)
    from workbench.conversion.vllm_checkpoint.directory import (
        write_directory,  # after the check for missing packages
    )

    write_directory(model, out, report_progress)
    return {"outside": directories_outside(model.sources, directory), "path": str(out)}


def _write_layers(directory: Path, family: str, stages: list[str], out: Path) -> dict[str, Any]:
    import numpy as np

    from workbench.conversion.linear_layers import linear_layers

    arrays: dict[str, Any] = {}
    for stage, each in linear_layers(directory, family, stages).items():
        arrays |= {f"{stage}.{kind}": values for kind, values in zip(("weight", "bias"), each)}
    np.savez(out, **arrays)
    return {"outside": []}


def directories_outside(sources: Iterable[Path], directory: Path) -> list[str]:
    """Returns the directories that the model was read from, except its own."""
    resolved = {source.resolve() for source in sources}
    return sorted(str(source) for source in resolved if not source.is_relative_to(directory.resolve()))


def _stop(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _end_with_caller() -> None:
    while os.read(sys.stdin.fileno(), 1024):  # sys.stdin itself is locked during a read, also when Python ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    run_and_exit()
