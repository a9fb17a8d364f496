"""Compares two trace files for a visitor, in a process of its own: with a memory limit, and until its visitor leaves.

Small files may hold much (gigabytes from 260 kB), so the server itself reads none of it. The process is
`workbench compare --json`. This file knows no trace.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.compare.presets import find_preset
from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.visitors import check_work
from workbench.prepared.kinds import session_environment
from workbench.serving.guard import Guard
from workbench.system.memory import limit_data

ROOT = Path(__file__).resolve().parents[2]
BEAT_SECONDS = 0.1  # how often whoever waits looks whether the work is to end
LEAST_GB = 1.0  # of memory
SAID = "workbench: "  # before each sentence of the command
NO_MEMORY = ("MemoryError", "Unable to allocate")


def compare_apart(
    guard: Guard,
    reference: str | Path,
    candidate: str | Path,
    *,
    stages: str = "*",
    preset: str | None = None,
    mapping: str | Path | None = None,
    exact: str | Path | None = None,
    rules: Sequence[str] = (),
    force: bool = False,
    profiles: bool = False,
) -> dict[str, Any]:
    """Returns the JSON of `workbench compare --json` for two files; the arguments are those of the command.

    Waits for its turn in the line, as comparisons are made one at a time. Raises `BadInput` for files that cannot be
    compared, `WorkbenchError` for a comparison that takes too much memory, and what `Work.check` raises.
    """
    if preset:
        find_preset(preset)  # says what there is
    flags = [f"--stages={stages}", *(f"--tolerance={rule}" for rule in rules)]
    given = {"preset": preset, "mapping": mapping, "float64": exact}
    flags += [f"--{name}={value}" for name, value in given.items() if value]
    flags += [f"--{name}" for name, wanted in (("force", force), ("profiles", profiles)) if wanted]
    command = [sys.executable, "-m", "workbench", "compare", "--json", *flags, "--", str(reference), str(candidate)]
    with guard.turn("comparison"), tempfile.TemporaryFile() as found, tempfile.TemporaryFile() as said:
        status = _run(command, found, said, max(guard.limits.process_gb, LEAST_GB) if guard.public else 0.0)
        found.seek(0)
        said.seek(0)
        written = found.read()
        if status in (0, 1) and written:
            return dict(json.loads(written))
        *_, last = [line for line in said.read().decode("utf-8", "replace").splitlines() if line.strip()] or [""]
        sentence = last.removeprefix(SAID)
    if status < 0 or any(each in sentence for each in NO_MEMORY):
        raise WorkbenchError("the comparison needs more memory than it may have here; compare fewer stages, or smaller")
    if status == BadInput.exit_status and last.startswith(SAID):
        raise BadInput(sentence)
    raise WorkbenchError(f"the comparison ended with status {status}: {sentence:.200}")


def _run(command: Sequence[str], found: Any, said: Any, gigabytes: float) -> int:
    """Runs the command to its end, or ends it; returns its status."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=found,
            stderr=said,
            env=session_environment(str(ROOT), parallel=False),
            start_new_session=True,
        )
    except OSError as error:
        raise WorkbenchError(f"the comparison cannot start: {error.strerror or error}") from error
    try:
        if gigabytes:
            limit_data(process.pid, int(gigabytes * (1 << 30)))
        while True:
            try:
                return process.wait(BEAT_SECONDS)
            except subprocess.TimeoutExpired:
                check_work()
    finally:
        process.kill()
        process.wait()
