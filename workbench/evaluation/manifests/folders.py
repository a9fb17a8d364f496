"""Manifests that are directories: Kaldi's, and recordings with their transcripts beside, also in an archive."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workbench.core.errors import BadInput, message_of
from workbench.evaluation.manifests.found import Rows, lists_among, no_corpus
from workbench.evaluation.places import ARCHIVES, DAMAGE, SOUNDS, needs_password
from workbench.formats.text_files import lines_of
from workbench.system.folders import files_below, is_system_file

TRANSCRIPTS = (".normalized.txt", ".txt", ".lab")  # endings of a transcript beside its recording, the best first
LISTED = ".trans.txt"  # LibriSpeech: the name of a recording of that folder and its text on each line
KALDI = "wav.scp"  # the file that makes a folder a data directory of Kaldi
LONGEST = 1 << 20  # bytes of a transcript


# Kaldi's data directories.


def kaldi_rows(folder: Path) -> Rows:
    """Yields the utterances of a data directory: those of `segments` if that file exists, else those of `wav.scp`."""
    recordings: dict[str, str] = {}
    texts = dict(_table(folder / "text"))
    speakers = dict(_table(folder / "utt2spk", required=False))
    languages = dict(_table(folder / "utt2lang", required=False))
    segmented = (folder / "segments").is_file()
    for number, (name, value) in enumerate(_table(folder / KALDI), 1):
        where = f"wav.scp, line {number}"
        reason = _unusable(name, value, where)
        if reason:
            yield where, reason
        elif name in recordings:
            yield where, f"the recording {name!r:.80} appears there twice"
        else:
            recordings[name] = value
            if not segmented:
                yield where, _kaldi_row(name, value, texts, speakers, languages)
    if segmented:
        for number, (name, value) in enumerate(_table(folder / "segments"), 1):
            where, fields = f"segments, line {number}", value.split()
            if len(fields) != 3:
                yield where, f"it has {len(fields) + 1} fields; expected UTTERANCE RECORDING START END"
            elif fields[0] not in recordings:
                yield where, f"wav.scp has no recording {fields[0]!r:.80} that can be used"
            else:
                row = _kaldi_row(name, recordings[fields[0]], texts, speakers, languages)
                yield where, {**row, "offset": fields[1], "end": None if fields[2] == "-1" else fields[2]}


def _kaldi_row(
    name: str, audio: str, texts: dict[str, str], speakers: dict[str, str], languages: dict[str, str]
) -> dict[str, object]:
    return {
        "id": name,
        "audio": audio,
        "text": texts.get(name),
        "speaker": speakers.get(name),
        "language": languages.get(name),
    }


def _unusable(name: str, value: str, where: str) -> str | None:
    if not value:
        return f"the recording {name!r:.80} has no path"
    if value.endswith("|"):
        return (
            f"the recording {name!r:.80} is the output of a command ({value[:60]!r}), which is not run; expected a file"
        )
    path, colon, position = value.rpartition(":")
    if colon and position.isdigit() and path.endswith(".ark"):
        return f"the recording {name!r:.80} is inside a Kaldi archive ({value[-60:]!r}); expected a sound file"
    return None


def _table(path: Path, required: bool = True) -> Iterator[tuple[str, str]]:
    """Yields the pairs of a file in a data directory."""
    if not path.is_file():
        if required:
            raise BadInput(f"the Kaldi data directory {path.parent} has no file {path.name}; expected one")
        return
    yield from _pairs(_lines(path.read_bytes(), str(path)))


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the first field of each line, which a space or a tab ends, and the rest."""
    for line in lines:
        if line.strip():
            name, _, value = line.strip().partition(" ")
            if "\t" in name:
                name, _, value = line.strip().partition("\t")
            yield name, value.strip()


# Recordings with their transcripts beside.


@dataclass(frozen=True)
class Listing:
    """The files below a folder or in an archive, with / between folders."""

    names: Sequence[str]
    read: Callable[[str], bytes]


def listing_of(path: Path) -> Listing:
    """Returns the files of a folder or an archive; raises `BadInput` if it cannot be read.

    Files that macOS adds beside those of its user are left out.
    """
    try:
        if path.is_dir():
            names = sorted(each.relative_to(path).as_posix() for each in files_below(path))
            return Listing(_of_users(names), lambda name: (path / name).open("rb").read(LONGEST))
        if path.suffix.lower() == ".zip":
            archive = zipfile.ZipFile(path)
            inside = sorted(each.filename for each in archive.infolist() if not each.is_dir())
            return Listing(_of_users(inside), lambda name: archive.open(name).read(LONGEST))
        members: dict[
            str, bytes
        ] = {}  # transcripts are kept, because going back in a compressed archive reads it again
        with tarfile.open(path) as tar:
            for member in tar:
                if member.isfile():
                    text = member.name.lower().endswith((*TRANSCRIPTS, LISTED)) and tar.extractfile(member)
                    members[member.name] = text.read(LONGEST) if text else b""
        return Listing(_of_users(sorted(members)), members.__getitem__)
    except (*DAMAGE, OSError) as error:
        raise no_corpus(path, f"cannot be read ({message_of(error, 100)})") from error


def _of_users(names: Sequence[str]) -> list[str]:
    return [name for name in names if not is_system_file(name)]


def folder_rows(path: Path) -> Rows:
    """Yields the recordings of a folder or an archive with their transcripts, in the order of their names.

    Raises `BadInput` if there are none, or only a list of them that has to be named itself.
    """
    listing = listing_of(path)
    names = set(listing.names)
    recordings = [name for name in listing.names if PurePosixPath(name).suffix.lower() in SOUNDS]
    if not recordings:
        raise no_corpus(path, "holds no recordings")
    lists = lists_among(listing.names)
    if lists and not any(name.lower().endswith((*TRANSCRIPTS, LISTED)) for name in listing.names):
        advice = "name that list" if path.is_dir() else "unpack it and name that list"
        raise BadInput(f"{path} holds no transcripts beside its recordings, but the list {lists[0]}; {advice}")
    listed: dict[str, str] = {}
    for name in listing.names:
        if name.endswith(LISTED):
            folder = name.rpartition("/")[0]
            try:
                for stem, text in _pairs(_lines(_content(listing, name), name)):
                    listed[f"{folder}/{stem}" if folder else stem] = text
            except BadInput as error:
                yield name, str(error)
    stems = {name: name.removesuffix(PurePosixPath(name).suffix) for name in recordings}
    for stem in sorted(listed.keys() - set(stems.values())):
        yield stem, "there is no recording of this name, only its text"
    for name, stem in stems.items():
        beside = (stem + spelling for end in TRANSCRIPTS for spelling in (end, end.upper()))
        transcript = next((name for name in beside if name in names), None)
        speaker = None
        if stem in listed:
            text = listed[stem]
            # LibriSpeech names its recordings SPEAKER-CHAPTER-NUMBER.
            parts = PurePosixPath(stem).name.split("-")
            speaker = parts[0] if len(parts) == 3 and all(part.isdigit() for part in parts) else None
        elif transcript is None:
            yield name, f"there is no transcript beside it; expected {PurePosixPath(stem).name}.txt or .lab"
            continue
        else:
            try:
                text = " ".join(_lines(_content(listing, transcript), transcript))
            except BadInput as error:
                yield name, str(error)
                continue
        yield name, {"id": stem.removeprefix("./"), "audio": name, "text": text, "speaker": speaker}


def _content(listing: Listing, name: str) -> bytes:
    try:
        return listing.read(name)
    except (*DAMAGE, OSError, RuntimeError) as error:
        reason = "it needs a password" if needs_password(error) else message_of(error, 100)
        raise BadInput(f"{name} cannot be read ({reason})") from error


def _lines(content: bytes, name: str) -> list[str]:
    try:
        return lines_of(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} is not written in UTF-8 (byte {error.start})") from error


def is_archive(path: Path) -> bool:
    """Returns whether a file is an archive, by its name."""
    return path.name.lower().endswith(ARCHIVES)
