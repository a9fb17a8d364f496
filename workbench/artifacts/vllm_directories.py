"""The directories that vLLM loads, made on first use and stored in the user's cache.

An entry belongs to the contents of a checkpoint: the same files elsewhere share it. It is made again when the contents
change, or when its own files have changed since they were written. It is made in a separate process, and only once for
several simultaneous callers. This file imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.artifacts.digests import Digests
from workbench.artifacts.gguf_files import cache_folder, entry_name, package_of
from workbench.artifacts.locking import locked
from workbench.artifacts.process import run_child
from workbench.artifacts.seals import seal, unbroken
from workbench.core.progress import OnProgress
from workbench.families.language.causal_lm import loads_unconverted
from workbench.families.language.directory import VLLM_FORMAT
from workbench.system.atomic_files import UNFINISHED, explained_file_errors

DIGESTS = "digests.json"  # digests of files that were read before
READING = 0.2  # share of the progress for reading the checkpoint

log = logging.getLogger(__name__)


def vllm_directory(directory: Path, family: str, on_progress: OnProgress | None = None) -> Path:
    """Returns the directory that vLLM loads for a checkpoint directory, and makes it first if needed.

    For an ordinary language model with safetensors, it is the checkpoint directory itself.

    Args:
        directory: the checkpoint.
        family: its family's name.
        on_progress: called again and again during the work. If it raises, the work ends and leaves no files.

    Raises `BadInput` for a family that vLLM does not serve and for a bad checkpoint, `Unavailable` if a package or
    space on the disk is missing.
    """
    directory = directory.resolve()
    if loads_unconverted(directory, family):
        return directory
    digests = Digests(cache_folder("vllm") / DIGESTS)
    entry = _Entry.of(directory, family, digests, on_progress)
    if entry.is_complete(digests):
        return entry.place
    with locked(entry.place, directory.name, on_progress):
        if not entry.is_complete(digests):  # another caller may have made it in the meantime
            if entry.place.is_dir():
                log.warning("%s has changed since it was written; it will be made again", entry.place)
            entry.clear()
            entry.make(digests, on_progress)
        entry.claim()
    return entry.place


@dataclass(frozen=True)
class _Entry:
    """A directory in the cache, with a file of facts beside it."""

    directory: Path  # the checkpoint
    family: str
    place: Path

    @classmethod
    def of(cls, directory: Path, family: str, digests: Digests, on_progress: OnProgress | None) -> _Entry:
        def read(fraction: float) -> None:
            if on_progress is not None:
                on_progress(READING * fraction, f"reading {directory.name}")

        key = [family, __version__, VLLM_FORMAT, *package_of(family), digests.of(directory, read)]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        return cls(directory, family, cache_folder("vllm") / entry_name(directory, digest))

    @property
    def about(self) -> Path:
        """The file of facts.

        It names the checkpoint directories with these contents, the outside directories that were used, and the seals.
        """
        return _about(self.place)

    def is_complete(self, digests: Digests) -> bool:
        """Returns whether the directory exists, is unchanged, and matches the current files outside the checkpoint."""
        metadata = _read(self.about)
        outside, seals = metadata.get("outside"), metadata.get("seals")
        if not isinstance(outside, dict) or not isinstance(seals, dict) or not seals:
            return False
        if not all(unbroken(self.place / name, sealed) for name, sealed in seals.items()):
            return False
        return all(Path(name).is_dir() and digests.of(Path(name)) == digest for name, digest in outside.items())

    def make(self, digests: Digests, on_progress: OnProgress | None) -> None:
        """Runs the child that writes the directory."""

        def report_progress(fraction: float, activity: str) -> None:
            if on_progress is not None:
                on_progress(READING + (1 - READING) * fraction, activity)

        arguments = {"directory": str(self.directory), "family": self.family, "served": str(self.place)}
        try:
            found = run_child(arguments, self.directory.name, report_progress)
        except BaseException:
            self.clear()  # it may have finished while it was told to stop
            raise
        outside = {name: digests.of(Path(name)) for name in found["outside"]}
        files = sorted(path for path in self.place.rglob("*") if path.is_file())
        seals = {path.relative_to(self.place).as_posix(): seal(path) for path in files}
        self._remember({"family": self.family, "directories": [], "outside": outside, "seals": seals})

    def claim(self) -> None:
        """Records that the entry belongs to this checkpoint directory, and removes those of its older states."""
        metadata = _read(self.about)
        directory = str(self.directory)
        claimed = metadata.get("directories")
        claimed = claimed if isinstance(claimed, list) else []
        if directory not in claimed:
            self._remember({**metadata, "directories": [*claimed, directory]})
        for about in self.place.parent.glob(".*.json"):
            entry = _read(about)
            if about == self.about or entry.get("family") != self.family or entry.get("directories") != [directory]:
                continue
            shutil.rmtree(about.parent / about.name[1:].removesuffix(".json"), ignore_errors=True)
            about.unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes the remains of interrupted runs, entries whose outside files have changed, and broken files."""
        for folder in [*self.place.parent.glob(f".{self.place.name}.*{UNFINISHED}"), self.place]:
            shutil.rmtree(folder, ignore_errors=True)
        self.about.unlink(missing_ok=True)

    def _remember(self, metadata: dict[str, Any]) -> None:
        temporary = self.about.with_name(f"{self.about.name}{UNFINISHED}")
        with explained_file_errors(self.about):
            temporary.write_text(json.dumps(metadata, indent=1), encoding="utf-8")
            temporary.replace(self.about)


def _about(place: Path) -> Path:
    return place.with_name(f".{place.name}.json")


def _read(about: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = json.loads(about.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}
