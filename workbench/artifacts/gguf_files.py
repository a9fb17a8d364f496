"""The GGUF files of checkpoint directories, made on first use and stored in the user's cache.

A conversion runs in its own process, and only once for several simultaneous callers. An entry belongs to a directory in
its current state: when a file in it or this package changes, the entry is made again and the old one removed. A file
that has changed since it was written, such as one that was cut short, is made again too. This file imports nothing
heavy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.artifacts.digests import listed
from workbench.artifacts.locking import locked
from workbench.artifacts.process import run_child
from workbench.artifacts.seals import seal, unbroken
from workbench.core.errors import BadInput
from workbench.core.progress import OnProgress
from workbench.families import FAMILIES
from workbench.families.gguf_files import CONVERTER, FORMAT_VERSION
from workbench.formats.quantization import AUTO, MAX_AUTO_F32_BYTES, TYPES, check_type, resolve_quantization
from workbench.system.atomic_files import UNFINISHED, explained_file_errors
from workbench.system.user_cache import file_name, user_cache

ABOUT = "about.json"  # facts about an entry: its directory, the sizes of its files, and their seals

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QuantizationOffer:
    """A type in which a model is available."""

    name: str
    nbytes: int | None  # size of the file; None if not known yet
    converted: bool  # whether the file exists
    default: bool  # whether `auto` stands for it


@dataclass(frozen=True)
class Entry:
    """The cache folder of one checkpoint directory in its current state."""

    directory: Path
    family: str
    folder: Path

    @classmethod
    def of(cls, directory: Path, family: str) -> Entry:
        """Returns the entry of a directory; raises `BadInput` if the directory cannot be read."""
        directory = directory.resolve()
        return cls(directory, family, cache_folder() / entry_name(directory, _digest(directory, family)))

    def file(self, quantization: str) -> Path:
        """Returns the path of the file of a type, which may not exist."""
        stem = self.folder.name.rpartition("-")[0]
        return self.folder / f"{stem}-{quantization}.gguf"

    @property
    def sizes(self) -> dict[str, int]:
        """The size of the file in bytes by type; empty if not computed yet."""
        metadata = self._about()
        outside = metadata.get("outside")
        if not isinstance(outside, dict) or outside != _stamps(outside):
            return {}
        sizes = _mapping(metadata.get("sizes"))
        return {name: sizes[name] for name in TYPES if type(sizes.get(name)) is int}

    def is_complete(self, quantization: str) -> bool:
        """Returns whether the file of a type exists, unchanged since it was written."""
        path = self.file(quantization)
        return unbroken(path, _mapping(self._about().get("seals")).get(path.name))

    @contextlib.contextmanager
    def locked(self, on_progress: OnProgress | None) -> Iterator[None]:
        """Locks the entry inside the block, and creates its folder."""
        with locked(self.folder, self.directory.name, on_progress):
            with explained_file_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            yield

    def _about(self) -> dict[str, Any]:
        try:
            content = json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return _mapping(content)

    def remember(self, found: Mapping[str, Any]) -> None:
        """Stores the results of a conversion.

        These are sizes, the directories outside the checkpoint that it read, and the seals of the files that it wrote.
        """
        seals = _mapping(self._about().get("seals"))
        for path in map(Path, found.get("paths", ())):
            seals[path.name] = seal(path)
        metadata = {"directory": str(self.directory), "family": self.family, "sizes": found["sizes"], "seals": seals}
        content = json.dumps({**metadata, "outside": _stamps(found["outside"])}, indent=1)
        temporary = self.folder / f".{ABOUT}{UNFINISHED}"
        with explained_file_errors(temporary):
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(self.folder / ABOUT)

    def tidy(self) -> None:
        """Removes the remains of interrupted conversions, and the entries of older states of the same checkpoint."""
        for path in self.folder.glob(f".*{UNFINISHED}"):
            path.unlink(missing_ok=True)
        known = self.sizes  # empty if a file outside the checkpoint has changed
        for path in self.folder.glob("*.gguf"):
            if known and any(path == self.file(name) and self.is_complete(name) for name in TYPES):
                continue
            if known:
                log.warning("%s has changed since it was written; it will be made again on the next use", path)
            path.unlink(missing_ok=True)
        for folder in self.folder.parent.iterdir():
            metadata = Entry(self.directory, self.family, folder)._about() if folder != self.folder else {}
            if (metadata.get("directory"), metadata.get("family")) == (str(self.directory), self.family):
                shutil.rmtree(folder, ignore_errors=True)


def cache_folder(kind: str = "gguf") -> Path:
    """Returns the folder for the files made for a runtime."""
    return user_cache() / kind


def entry_name(directory: Path, digest: str) -> str:
    """Returns the name of a checkpoint directory's entry in the cache."""
    return f"{file_name(directory.name)[:80]}-{digest}"


def converted(directory: Path, family: str, quantization: str = AUTO, on_progress: OnProgress | None = None) -> Path:
    """Returns the GGUF file of a checkpoint directory, and converts the directory first if needed.

    Args:
        directory: the checkpoint.
        family: its family's name.
        quantization: one of the offered types; `auto` is f32 if that file stays below 4 GB, else f16.
        on_progress: called again and again during the work. If it raises, the conversion ends and leaves no file.

    Raises `BadInput` and `Unavailable` as the conversion does.
    """
    return converted_files(directory, family, [quantization], on_progress)[0]


def converted_files(
    directory: Path, family: str, quantizations: Sequence[str], on_progress: OnProgress | None = None
) -> list[Path]:
    """Returns the files of several types, in their order. One conversion writes those that are missing.

    It reads the checkpoint once, so it is quicker than one conversion for each type. See `converted`.
    """
    entry = Entry.of(directory, family)
    if (paths := _existing(entry, quantizations)) is not None:
        return paths
    with entry.locked(on_progress):
        entry.tidy()
        if (paths := _existing(entry, quantizations)) is not None:  # another caller has made them in the meantime
            return paths
        for each in quantizations:
            if each != AUTO:
                check_type(each)
        files = {name: str(entry.file(name)) for name in TYPES}
        found = _run(entry, on_progress, {"quantizations": list(quantizations), "files": files})
    return [Path(path) for path in found["paths"]]


def measured(directory: Path, family: str, on_progress: OnProgress | None = None) -> tuple[QuantizationOffer, ...]:
    """Returns the types in which a checkpoint is available, with the exact sizes of their files.

    They are computed once, in a separate process, and remembered. Raises as `converted`.
    """
    entry = Entry.of(directory, family)
    if not entry.sizes:
        with entry.locked(on_progress):
            entry.tidy()
            if not entry.sizes:
                _run(entry, on_progress)
    return _offers(entry)


def offered(directory: Path | None, family: str | None = None) -> tuple[QuantizationOffer, ...]:
    """Returns the types in which a checkpoint is available, as far as known without any work.

    Args:
        directory: the checkpoint; None if it is not on this machine yet.
        family: its family's name; by default the family that recognises the directory.
    """
    if directory is None:
        return tuple(QuantizationOffer(name, None, False, False) for name in TYPES)
    if family is None:
        from workbench.families import family_of

        family = family_of(directory).name
    return _offers(Entry.of(directory, family))


def _offers(entry: Entry) -> tuple[QuantizationOffer, ...]:
    sizes = entry.sizes
    default = _default(entry, sizes)
    found = []
    for name in sizes or TYPES:
        path = entry.file(name)
        converted = name in sizes and path.is_file() and path.stat().st_size == sizes[name]
        found.append(QuantizationOffer(name, sizes.get(name), converted, name == default))
    return tuple(found)


def _default(entry: Entry, sizes: Mapping[str, int]) -> str | None:
    """Returns the type that `auto` stands for; None if not known yet."""
    if sizes:
        return resolve_quantization(AUTO, sizes)
    # Checkpoints store 16 bits or more per weight, so f32 is at most twice as large.
    return "f32" if 2 * sum(size for _, size, _ in listed(entry.directory)) < MAX_AUTO_F32_BYTES else None


def _existing(entry: Entry, quantizations: Sequence[str]) -> list[Path] | None:
    """Returns the files of these types; None if one of them is missing."""
    sizes = entry.sizes
    if not sizes:
        return None
    types = [resolve_quantization(each, sizes) for each in quantizations]
    return [entry.file(each) for each in types] if all(entry.is_complete(each) for each in types) else None


def _run(entry: Entry, on_progress: OnProgress | None, outputs: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Runs the child to measure sizes, and to convert if `outputs` are named; stores what it returns."""
    arguments = {"directory": str(entry.directory), "family": entry.family, **outputs}
    try:
        found = run_child(arguments, entry.directory.name, on_progress)
    except BaseException:
        with contextlib.suppress(OSError):
            entry.folder.rmdir()  # if it is empty
        raise
    entry.remember(found)
    return found


def _mapping(value: Any) -> dict[str, Any]:
    """Returns the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _digest(directory: Path, family: str) -> str:
    """Returns a digest of the directory, its files with sizes and times, and the version of the converter."""
    found = [str(directory), family, __version__, FORMAT_VERSION, CONVERTER, *package_of(family), *listed(directory)]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def package_of(family: str) -> list[str]:
    """Returns the package and version that the family comes from; empty for a family of this project."""
    package = FAMILIES[family].package if family in FAMILIES else ""
    return [package] if package else []


def _stamps(directories: Any) -> dict[str, str]:
    """Returns for each directory a text that changes with its files; directories that are gone are left out."""
    found = {}
    for name in directories:
        with contextlib.suppress(BadInput):
            found[str(name)] = hashlib.sha256(json.dumps(listed(Path(name))).encode()).hexdigest()[:16]
    return found
