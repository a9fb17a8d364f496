"""Lists the files of a corpus that is a folder or an archive, and reads its texts."""

from __future__ import annotations

import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import BadInput, message_of
from workbench.evaluation.manifests.corpus import MAX_TEXT_CHARACTERS, no_corpus
from workbench.evaluation.places import DAMAGE, needs_password
from workbench.formats.tar_files import opened_tar
from workbench.formats.zip_names import named_members
from workbench.system.folders import files_below, is_system_file

TEXTS = (".txt", ".lab", ".stm", ".csv")  # endings of files that `Listing.read` can read
MAX_LINE_BYTES = 4 * MAX_TEXT_CHARACTERS + 1  # bytes of the transcript of one recording

MaxBytes = Callable[[str], int]
"""Returns how many bytes of a file are read, by its name."""


@dataclass(frozen=True)
class Listing:
    """The files below a folder or in an archive, with / between folders."""

    names: Sequence[str]
    read: Callable[[str], bytes]


def listing_of(path: Path, max_bytes: MaxBytes) -> Listing:
    """Returns the files of a folder or an archive; raises `BadInput` if it cannot be read.

    Files that macOS adds beside those of its user are left out.
    """
    try:
        if path.is_dir():
            names = sorted(each.relative_to(path).as_posix() for each in files_below(path))
            return Listing(_of_users(names), lambda name: (path / name).open("rb").read(max_bytes(name)))
        if path.suffix.lower() == ".zip":
            archive = zipfile.ZipFile(path)
            inside = {each.filename: each for each in named_members(archive)}
            return Listing(_of_users(sorted(inside)), lambda name: archive.open(inside[name]).read(max_bytes(name)))
        # Texts are kept, because going back in a compressed archive reads it again.
        members: dict[str, bytes] = {}
        with opened_tar(path) as tar:
            for member in tar:
                if member.isfile():
                    text = member.name.lower().endswith(TEXTS) and tar.extractfile(member)
                    members[member.name] = text.read(max_bytes(member.name)) if text else b""
        return Listing(_of_users(sorted(members)), members.__getitem__)
    except (*DAMAGE, OSError) as error:
        raise no_corpus(path, f"cannot be read ({message_of(error, 100)})") from error


def unpacked_sizes(path: Path) -> Iterator[int]:
    """Yields the bytes of each file in an archive, unpacked; raises the errors of `DAMAGE` and `OSError`."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            yield from (each.file_size for each in archive.infolist())
    else:
        with opened_tar(path) as tar:
            yield from (each.size for each in tar)


def _of_users(names: Sequence[str]) -> list[str]:
    return [name for name in names if not is_system_file(name)]


def content_of(listing: Listing, name: str) -> bytes:
    """Returns a text of the corpus; raises `BadInput`, with its name, if it cannot be read."""
    try:
        return listing.read(name)
    except (*DAMAGE, OSError, RuntimeError) as error:
        reason = "it needs a password" if needs_password(error) else message_of(error, 100)
        raise BadInput(f"{name} cannot be read ({reason})") from error


def composed(name: str) -> str:
    """Returns a name with composed accents, which macOS decomposes, so that names from two systems compare equal."""
    return unicodedata.normalize("NFC", name)
