"""The corpus that a user of the page chooses: the samples, uploaded files, or a path on the server.

Uploaded manifests may name only uploaded recordings. Only `server_path` accepts paths on the server.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from workbench.audio.check import check_sound
from workbench.audio.refused import head_of
from workbench.core.errors import BadInput, message_of
from workbench.evaluation.manifests import FoundCorpus, read_manifest
from workbench.evaluation.manifests.corpus import is_list, lists_among
from workbench.evaluation.manifests.folders import is_archive, is_transcript_list
from workbench.evaluation.manifests.kaldi import KALDI
from workbench.evaluation.manifests.listing import unpacked_sizes
from workbench.evaluation.manifests.parquet import is_parquet
from workbench.evaluation.places import DAMAGE, SOUNDS
from workbench.evaluation.rows import Utterance
from workbench.evaluation.transcripts.files import read_transcripts
from workbench.formats.other_files import TEXT, other_kind
from workbench.formats.zip_names import named_members
from workbench.registry.sources import assets
from workbench.serving.admission.guard import Guard
from workbench.system.folders import files_below, is_file, is_system_file

MAX_UNPACKED = 4 << 30  # bytes of the files in the archives of one upload
MAX_FILES = 100_000
MAX_TRANSCRIPTS = 16 << 20  # bytes of a file of transcripts: those of some 100,000 recordings
LARGEST_PACKED = 256 << 20  # bytes that a packed list or a .tar file may unpack into
MAX_TIMES = 10  # or how many times its own size, for the recordings in a large one
OPENERS: Mapping[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}  # by the first bytes of a file
MAX_ROWS = 1000  # that are read before a run, to see whether one can be used
PIECE = 1 << 20  # bytes
PACKED = (".gz", ".bz2", ".xz")
EXPECTED = "recordings, their texts, a manifest, a Parquet file, or a .zip or .tar file of these"
EXAMPLE = "samples/manifest.csv"  # in the assets


def example() -> str:
    """Returns the manifest of the shipped samples."""
    return str(assets() / EXAMPLE)


def server_path(entry: str, guard: Guard) -> Path:
    """Returns a path on the server's machine from a user's text. No other function accepts such a path.

    Raises `Refused` on a public page, and `BadInput` if nothing is there.
    """
    guard.owners("a path on the server")
    path = Path(entry.strip()).expanduser()
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if not exists:
        raise BadInput(f"there is no {entry.strip()!r:.200} on the machine that runs this page")
    return path.absolute()


def uploaded_corpus(files: Sequence[str], folder: Path) -> Path:
    """Gathers uploaded files in a folder and returns their manifest, or the folder if there is none among them.

    The files are a manifest with its recordings, recordings with their texts beside, Parquet files of one split, or a
    .zip of any of these, or of a data directory of Kaldi. Raises `BadInput` for an archive that is broken or too large,
    for files of one name, for several manifests, and for a manifest that names a recording which was not uploaded with
    it.
    """
    folder.mkdir(parents=True)
    room = MAX_UNPACKED
    for file in map(Path, files):
        if file.suffix.lower() == ".zip":
            room -= _unpack(file, folder, room)
        else:
            place = folder / file.name
            if place.exists():
                raise BadInput(f"two uploaded files are called {file.name}; expected different names")
            shutil.copyfile(file, place)
    for archive in filter(is_archive, files_below(folder)):  # read where they are, and not unpacked
        room -= _unpacked_bytes(archive, room)
    manifest = _manifest_in(folder)
    try:
        _check_packed(manifest)
        _check_inside(read_manifest(manifest), folder)
    except BadInput as error:
        raise _as_uploaded(error, folder) from error
    return manifest


def _manifest_in(folder: Path) -> Path:
    """Returns the manifest of uploaded files: the list, or the data directory of Kaldi, that lies highest.

    If there is neither, returns the only archive of files without recordings, or else the folder.
    """
    files = [each.relative_to(folder) for each in folder.rglob("*") if each.is_file()]
    files = [each for each in files if not is_system_file(str(each))]
    for depth in sorted({len(each.parts) for each in files}):
        names = [str(each) for each in files if len(each.parts) == depth]
        manifests = [each for each in names if PurePosixPath(each).name == KALDI] or lists_among(names)
        if len(manifests) > 1:
            raise BadInput(f"there are {len(manifests)} manifests: {', '.join(sorted(manifests))}; expected one")
        if manifests:
            manifest = folder / manifests[0]
            return manifest.parent if manifest.name == KALDI else manifest
    archives = [each for each in files if is_archive(each)]
    has_recordings = any(each.suffix.lower() in SOUNDS for each in files)
    return folder / archives[0] if len(archives) == 1 and not has_recordings else folder


def check_upload(file: Path) -> None:
    """Raises `BadInput` for a recording, a manifest or an archive that cannot be read, and for a document, a picture or
    another file that is none of them. The user learns this before a run needs the file.
    """
    if file.suffix.lower() == ".zip":
        with _archive(file):
            pass
    elif file.suffix.lower() in SOUNDS:
        check_sound(file)
    elif is_list(file.name) or is_parquet(file.name):
        try:
            _check_packed(file)
            found = read_manifest(file)
            if found.format != "folder":  # such a list is read together with its recordings
                next((row for row in islice(found.rows(), MAX_ROWS) if isinstance(row, Utterance)), None)
        except BadInput as error:
            raise _as_uploaded(error, file.parent) from error
    elif not (is_archive(file) or file.suffix.lower() in PACKED):
        kind = other_kind(head_of(file))
        if kind and kind != TEXT:  # texts of recordings have many endings
            raise BadInput(f"{file.name} is {kind}; expected {EXPECTED}")


def uploaded_transcripts(files: Sequence[str]) -> dict[str, str]:
    """Returns uploaded files of transcripts by the name of the program, which is that of the file without its ending.

    Raises `BadInput` for a file that is too large, and for two of one name. The run reads the files before it computes.
    """
    found: dict[str, str] = {}
    for file in map(Path, files):
        _check_size(file)
        if file.stem in found:
            raise BadInput(f"two files of transcripts are called {file.stem}; expected different names of programs")
        found[file.stem] = str(file)
    return found


def check_transcripts(file: Path) -> None:
    """Raises `BadInput` for a file of transcripts that cannot be read, or is too large for the server's memory."""
    _check_size(file)
    read_transcripts(file)


def _check_size(file: Path) -> None:
    if file.stat().st_size > MAX_TRANSCRIPTS:
        raise BadInput(
            f"{file.name} has more than {MAX_TRANSCRIPTS >> 20} MB; the command `workbench evaluate` takes it"
        )


def _as_uploaded(error: BadInput, folder: Path) -> BadInput:
    """Returns the error with the names of uploaded files in place of their paths on the server."""
    kept_in = str(folder.absolute())
    return BadInput(str(error).replace(f"{kept_in}/", "").replace(kept_in, "what was uploaded"))


@contextlib.contextmanager
def _archive(file: Path) -> Iterator[zipfile.ZipFile]:
    """Opens an archive; raises `BadInput` if the archive, or a file that the context reads from it, is broken."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (*DAMAGE, OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or message_of(error)  # without the place on the server
        raise BadInput(f"{file.name} cannot be unpacked: {reason}") from error


def _unpack(file: Path, folder: Path, room: int) -> int:
    """Unpacks an archive and returns the bytes of its files; raises `BadInput` for more than `room`."""
    with _archive(file) as archive:
        members = named_members(archive)
        size = sum(each.file_size for each in members)
        if size > room or len(members) > MAX_FILES:
            raise _too_large(file)
        for member in members:
            if _would_replace(member, folder):
                raise BadInput(f"{file.name} and another uploaded file hold different {member.filename}; rename one")
        archive.extractall(folder, members)  # never outside of the folder
    return size


def _check_packed(file: Path) -> None:
    """Raises `BadInput` for a compressed list or .tar file that unpacks into too much.

    The code that reads it keeps transcripts in memory. A folder, and a file that is not compressed or is damaged,
    passes.
    """
    if not file.is_file():
        return
    with file.open("rb") as raw:
        head = raw.read(8)
    opener = next((each for magic, each in OPENERS.items() if head.startswith(magic)), None)
    if opener is None:
        return
    limit = min(max(LARGEST_PACKED, MAX_TIMES * file.stat().st_size), MAX_UNPACKED)
    size = 0
    with contextlib.suppress(*DAMAGE, OSError, EOFError), opener(file, "rb") as unpacked:
        while piece := unpacked.read(PIECE):
            size += len(piece)
            if size > limit:
                raise BadInput(
                    f"{file.name} unpacks into more than {limit >> 20} MB; upload it in parts, or its files in a .zip"
                )


def _unpacked_bytes(file: Path, room: int) -> int:
    """Returns the bytes of the files in an archive; a damaged one passes. Raises `BadInput` for more than `room`."""
    size = 0
    with contextlib.suppress(*DAMAGE, OSError):
        for number, each in enumerate(unpacked_sizes(file)):
            size += each
            if size > room or number >= MAX_FILES:
                raise _too_large(file)
    return size


def _too_large(file: Path) -> BadInput:
    return BadInput(
        f"{file.name} is too large; expected at most {MAX_FILES} files, and {MAX_UNPACKED >> 30} GB in all archives "
        "together"
    )


def _would_replace(member: zipfile.ZipInfo, folder: Path) -> bool:
    """Returns whether a recording or a list in an archive would replace another one; a README may."""
    name = PurePosixPath(*(part for part in member.filename.split("/") if part not in ("", ".", "..")))
    counts = name.suffix.lower() in SOUNDS or is_list(name.name) or is_parquet(name.name) or name.name == KALDI
    place = folder / name
    return (counts or is_transcript_list(name.name)) and is_file(place) and _checksum(place) != member.CRC


def _checksum(file: Path) -> int:
    checksum = 0
    with file.open("rb") as content:
        while piece := content.read(1 << 20):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _check_inside(found: FoundCorpus, folder: Path) -> None:
    root = Path(found.root)
    if not root.resolve().is_relative_to(folder.resolve()):
        raise BadInput("the manifest names a file that was not uploaded; upload all its recordings with it")
    for row in found.rows():
        if isinstance(row, Utterance) and _is_outside(row.audio):
            raise BadInput(
                f"the recording {row.id!r:.80} is at {row.audio!r:.120}; expected a file that is uploaded with the "
                "manifest, named relative to it"
            )


def _is_outside(audio: str) -> bool:
    """Returns whether a recording of a manifest is at an address, or at a path that leads out of the manifest's folder.

    A colon alone, as in `12:30.wav`, is part of a name.
    """
    path = PurePosixPath(audio)
    is_absolute = path.is_absolute() or PureWindowsPath(audio).is_absolute()
    return is_absolute or ".." in path.parts or "://" in audio or "::" in audio
