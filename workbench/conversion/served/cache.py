"""The directories that vLLM loads, made when they are first wanted and kept in the user's cache.

An entry is that of a checkpoint's contents: the same files elsewhere have the same one, and when they change it is made
anew. It is made in a process of its own, once however many ask for it. This file imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.conversion.cache import cache_folder, entry_name
from workbench.conversion.contents import Digests
from workbench.conversion.locking import locked
from workbench.conversion.places import UNFINISHED, told
from workbench.conversion.process import run_child
from workbench.conversion.served.checkpoint import loads_as_it_is
from workbench.families.language import SERVED_FORMAT
from workbench.progress import OnProgress

DIGESTS = "digests.json"  # of files that were read before
READING = 0.2  # of the progress


def served_directory(directory: Path, family: str, on_progress: OnProgress | None = None) -> Path:
    """The directory that vLLM loads for a checkpoint directory, made first where needed.

    An ordinary language model's directory with safetensors is its own.

    Args:
        directory: of the checkpoint.
        family: its family's name.
        on_progress: called again and again while it takes time. When it raises, the work ends and leaves nothing.

    Raises `BadInput` for a family that vLLM does not serve and for a bad checkpoint, `Unavailable` where a package or
    room on the disk is missing.
    """
    directory = directory.resolve()
    if loads_as_it_is(directory, family):
        return directory
    digests = Digests(cache_folder("vllm") / DIGESTS)
    entry = _Entry.of(directory, family, digests, on_progress)
    if entry.whole(digests):
        return entry.place
    with locked(entry.place, directory.name, on_progress):
        if not entry.whole(digests):  # another one may have made it in the meantime
            entry.clear()
            entry.make(digests, on_progress)
        entry.claim()
    return entry.place


@dataclass(frozen=True)
class _Entry:
    """A directory in the cache, and what is known of it in a file beside it."""

    directory: Path  # of the checkpoint
    family: str
    place: Path

    @classmethod
    def of(cls, directory: Path, family: str, digests: Digests, on_progress: OnProgress | None) -> _Entry:
        def read(fraction: float) -> None:
            if on_progress is not None:
                on_progress(READING * fraction, f"reading {directory.name}")

        key = [family, __version__, SERVED_FORMAT, digests.of(directory, read)]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        return cls(directory, family, cache_folder("vllm") / entry_name(directory, digest))

    @property
    def about(self) -> Path:
        """The file: the checkpoint directories with these contents, the directories outside them that it is made of."""
        return _about(self.place)

    def whole(self, digests: Digests) -> bool:
        """Whether it is there, made of what lies outside the checkpoint as it is now."""
        known = _read(self.about)
        outside = known.get("outside")
        if not isinstance(outside, dict) or not self.place.is_dir():
            return False
        return all(Path(name).is_dir() and digests.of(Path(name)) == digest for name, digest in outside.items())

    def make(self, digests: Digests, on_progress: OnProgress | None) -> None:
        """Has the child write it."""

        def told_of(fraction: float, said: str) -> None:
            if on_progress is not None:
                on_progress(READING + (1 - READING) * fraction, said)

        given = {"directory": str(self.directory), "family": self.family, "served": str(self.place)}
        found = run_child(given, self.directory.name, told_of)
        outside = {name: digests.of(Path(name)) for name in found["outside"]}
        self._remember({"family": self.family, "directories": [], "outside": outside})

    def claim(self) -> None:
        """Says that it is this directory's, and removes what was this directory's as it was before."""
        known = _read(self.about)
        mine = str(self.directory)
        if mine not in known.get("directories", []):
            self._remember({**known, "directories": [*known.get("directories", []), mine]})
        for about in self.place.parent.glob(".*.json"):
            other = _read(about)
            if about == self.about or other.get("family") != self.family or other.get("directories") != [mine]:
                continue
            shutil.rmtree(about.parent / about.name[1:].removesuffix(".json"), ignore_errors=True)
            about.unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes what is left of interrupted runs, and of contents that lay outside and have changed."""
        for folder in [*self.place.parent.glob(f".{self.place.name}.*{UNFINISHED}"), self.place]:
            shutil.rmtree(folder, ignore_errors=True)
        self.about.unlink(missing_ok=True)

    def _remember(self, known: dict[str, Any]) -> None:
        written = self.about.with_name(f"{self.about.name}{UNFINISHED}")
        with told(self.about):
            written.write_text(json.dumps(known, indent=1), encoding="utf-8")
            written.replace(self.about)


def _about(place: Path) -> Path:
    return place.with_name(f".{place.name}.json")


def _read(about: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = json.loads(about.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}
