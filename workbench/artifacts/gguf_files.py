"""The GGUF files of checkpoint directories, made when they are first wanted and kept in the user's cache.

A conversion runs in a process of its own, and once however many ask for it. An entry is that of a directory as it is:
when a file in it changes, or this package, it is made anew and the old one removed. A file that is not what was written
any more, such as one that was cut short, is made anew too. This file imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
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
from workbench.families.gguf_files import FORMAT_VERSION
from workbench.formats.quantization import AUTO, LARGE, TYPES, check_type, resolve_quantization
from workbench.system.atomic_files import UNFINISHED, told
from workbench.system.user_cache import file_name, user_cache

NEEDS = ("torch", "gguf", "transformers")  # packages that a conversion imports
ABOUT = "about.json"  # what is known of an entry: its directory, the sizes of its files, and whether they are whole

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QuantizationOffer:
    """A type that a model can be had in."""

    name: str
    nbytes: int | None  # of the file; None where it is not known yet
    converted: bool  # the file is there
    default: bool  # it is what `auto` stands for


@dataclass(frozen=True)
class Entry:
    """The folder of one checkpoint directory, as it is, in the cache."""

    directory: Path
    family: str
    folder: Path

    @classmethod
    def of(cls, directory: Path, family: str) -> Entry:
        """The entry of a directory; raises `BadInput` where that cannot be read."""
        directory = directory.resolve()
        return cls(directory, family, cache_folder() / entry_name(directory, _digest(directory, family)))

    def file(self, quantization: str) -> Path:
        """The file of a type, which may not be there."""
        stem = self.folder.name.rpartition("-")[0]
        return self.folder / f"{stem}-{quantization}.gguf"

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the file in every type; empty where they have not been computed yet."""
        about = self._about()
        outside = about.get("outside")
        if not isinstance(outside, dict) or outside != _stamps(outside):
            return {}
        sizes = _mapping(about.get("sizes"))
        return {name: sizes[name] for name in TYPES if type(sizes.get(name)) is int}

    def whole(self, quantization: str) -> bool:
        """Whether the file of a type is there, as it was written."""
        path = self.file(quantization)
        return unbroken(path, _mapping(self._about().get("seals")).get(path.name))

    @contextlib.contextmanager
    def locked(self, on_progress: OnProgress | None) -> Iterator[None]:
        """Holds the entry, whose folder is there within the block."""
        with locked(self.folder, self.directory.name, on_progress):
            with told(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            yield

    def _about(self) -> dict[str, Any]:
        try:
            content = json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return _mapping(content)

    def remember(self, found: Mapping[str, Any]) -> None:
        """Keeps what a conversion found out: sizes, the directories outside that the model was read from, and what
        tells whether the file that it wrote is whole."""
        seals = _mapping(self._about().get("seals"))
        if "path" in found:
            seals[Path(found["path"]).name] = seal(Path(found["path"]))
        about = {"directory": str(self.directory), "family": self.family, "sizes": found["sizes"], "seals": seals}
        content = json.dumps({**about, "outside": _stamps(found["outside"])}, indent=1)
        written = self.folder / f".{ABOUT}{UNFINISHED}"
        with told(written):
            written.write_text(content, encoding="utf-8")
            written.replace(self.folder / ABOUT)

    def tidy(self) -> None:
        """Removes what interrupted conversions left, and the entries of the same checkpoint as it was before."""
        for path in self.folder.glob(f".*{UNFINISHED}"):
            path.unlink(missing_ok=True)
        known = self.sizes  # nothing, where something outside has changed
        for path in self.folder.glob("*.gguf"):
            if known and any(path == self.file(name) and self.whole(name) for name in TYPES):
                continue
            if known:
                log.warning("%s is not what was written there, and is made anew when it is wanted", path)
            path.unlink(missing_ok=True)
        for folder in self.folder.parent.iterdir():
            about = Entry(self.directory, self.family, folder)._about() if folder != self.folder else {}
            if (about.get("directory"), about.get("family")) == (str(self.directory), self.family):
                shutil.rmtree(folder, ignore_errors=True)


def cache_folder(kind: str = "gguf") -> Path:
    """Where what is made for a runtime is kept."""
    return user_cache() / kind


def entry_name(directory: Path, digest: str) -> str:
    """What the entry of a checkpoint directory is called there."""
    return f"{file_name(directory.name)[:80]}-{digest}"


def converted(directory: Path, family: str, quantization: str = AUTO, on_progress: OnProgress | None = None) -> Path:
    """The GGUF file of a checkpoint directory, converted first where needed.

    Args:
        directory: of the checkpoint.
        family: its family's name.
        quantization: one of the types offered; `auto` is f32 where that file stays below 4 GB, else f16.
        on_progress: called again and again while it takes time. When it raises, the conversion ends and leaves nothing.

    Raises `BadInput` and `Unavailable` as the conversion does.
    """
    entry = Entry.of(directory, family)
    if (path := _existing(entry, quantization)) is not None:
        return path
    with entry.locked(on_progress):
        entry.tidy()
        if (path := _existing(entry, quantization)) is not None:  # another one made it in the meantime
            return path
        if quantization != AUTO:
            check_type(quantization)
        files = {name: str(entry.file(name)) for name in TYPES}
        found = _run(entry, on_progress, {"quantization": quantization, "files": files})
    return Path(found["path"])


def measured(directory: Path, family: str, on_progress: OnProgress | None = None) -> tuple[QuantizationOffer, ...]:
    """The types that a checkpoint can be had in with the sizes of their files, exact to the byte.

    They are computed once, in a process of its own, and remembered. Raises as `converted`.
    """
    entry = Entry.of(directory, family)
    if not entry.sizes:
        with entry.locked(on_progress):
            entry.tidy()
            if not entry.sizes:
                _run(entry, on_progress)
    return _offers(entry)


def offered(directory: Path | None, family: str | None = None) -> tuple[QuantizationOffer, ...]:
    """The types that a checkpoint can be had in, as far as they are known without any work.

    Args:
        directory: of the checkpoint; None while it is not on this machine.
        family: its family's name; where it is left out, the one that recognises the directory.
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
        there = name in sizes and path.is_file() and path.stat().st_size == sizes[name]
        found.append(QuantizationOffer(name, sizes.get(name), there, name == default))
    return tuple(found)


def _default(entry: Entry, sizes: Mapping[str, int]) -> str | None:
    """What `auto` stands for; None where it is not known yet."""
    if sizes:
        return resolve_quantization(AUTO, sizes)
    # In f32 weights are at most twice as large as in the files they come in, which have 16 bits or more each.
    return "f32" if 2 * sum(size for _, size, _ in listed(entry.directory)) < LARGE else None


def _existing(entry: Entry, quantization: str) -> Path | None:
    sizes = entry.sizes
    if not sizes:
        return None
    chosen = resolve_quantization(quantization, sizes)
    return entry.file(chosen) if entry.whole(chosen) else None


def _run(entry: Entry, on_progress: OnProgress | None, wanted: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Has the child measure, and convert where something is wanted; keeps what it finds out."""
    given = {"directory": str(entry.directory), "family": entry.family, **wanted}
    try:
        found = run_child(given, entry.directory.name, on_progress)
    except BaseException:
        with contextlib.suppress(OSError):
            entry.folder.rmdir()  # if it is empty
        raise
    entry.remember(found)
    return found


def _mapping(value: Any) -> dict[str, Any]:
    """What a file of JSON says, where that is an object."""
    return value if isinstance(value, dict) else {}


def _digest(directory: Path, family: str) -> str:
    """Of the directory, its files with their sizes and times, and the version of what converts them."""
    found = [str(directory), family, __version__, FORMAT_VERSION, *listed(directory)]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def _stamps(directories: Any) -> dict[str, str]:
    """By directory, what would change with its files; of one that is gone, nothing."""
    found = {}
    for name in directories:
        with contextlib.suppress(BadInput):
            found[str(name)] = hashlib.sha256(json.dumps(listed(Path(name))).encode()).hexdigest()[:16]
    return found
