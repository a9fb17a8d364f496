"""`workbench convert`: writes the GGUF files of a checkpoint directory, or says how large they would be."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from workbench.conversion.checkpoint import convert, plans_of
from workbench.conversion.places import check_place
from workbench.conversion.plan import estimated_bytes
from workbench.conversion.types import AUTO, TYPES, check_type
from workbench.errors import BadInput
from workbench.progress import OnProgress


def write_files(
    directory: Path,
    family: str,
    quantization: str,
    out: Path,
    layout: str,
    on_progress: OnProgress,
    on_note: Callable[[str], None],
) -> list[tuple[Path, int]]:
    """Converts a checkpoint and returns the files with their bytes; `on_note` is told what a user should know of them.

    Raises `BadInput` and `Unavailable` as `plans_of` and `convert`; an end by SIGTERM leaves no unfinished file either.
    """
    check_type(quantization, (AUTO, *TYPES))
    check_place(out.absolute())
    with terminable():
        on_progress(0.0, f"reading {directory.name}")
        plans = plans_of(directory, family, layout)
        paths, _ = convert(plans, quantization, out, on_progress)
    for note in dict.fromkeys(note for plan in plans for note in plan.notes):
        on_note(note)
    return [(path, path.stat().st_size) for path in paths]


def listed_sizes(directory: Path, family: str, layout: str) -> str:
    """JSON of the types that a checkpoint can be had in, with the bytes of its file or files."""
    return json.dumps(estimated_bytes(plans_of(directory, family, layout)))


def check_request(quantization: str | None, out: Path | None) -> tuple[str, Path]:
    """Both, where they are given; raises `BadInput` where one is missing."""
    if quantization is None or out is None:
        missing = "--quantization" if quantization is None else "--out"
        raise BadInput(f"{missing} is missing; give --quantization and --out, or --list to see what there is")
    return quantization, out


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Lets SIGTERM end the block like an exception, so that what has to be cleared up is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
