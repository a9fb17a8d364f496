"""Manifests that are folders or archives: recordings with their transcripts beside, or with lists of transcripts."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workbench.core.errors import BadInput, message_of
from workbench.core.phrases import enumerated
from workbench.evaluation.manifests.found import COLUMNAR, LONGEST_TEXT, Rows, inside_a_table, lists_among, no_corpus
from workbench.evaluation.manifests.named_values import are_labels, decoded_lines, named_values
from workbench.evaluation.places import ARCHIVES, DAMAGE, SOUNDS, needs_password
from workbench.formats.text_files import LARGEST_TEXT
from workbench.formats.zip_names import named_members
from workbench.system.folders import files_below, is_system_file

TRANSCRIPTS = (".normalized.txt", ".txt", ".lab")  # endings of a transcript beside its recording, the best first
LISTED = ".trans.txt"  # LibriSpeech: the name of a recording of that folder and its text on each line
NAMED_LIST = re.compile(r"[^/]*transcript[^/]*\.txt$", re.IGNORECASE)
"""The same for recordings in any folder: MLS's transcripts.txt, AISHELL's aishell_transcript_v0.8.txt."""
WAV, BESIDE_WAV = "wav", "transcript"  # AISHELL: the folder of its recordings, and the folder of its list beside that
TIMIT_LABELS = (".PHN", ".phn", ".WRD", ".wrd")  # endings of files beside a recording of TIMIT
TIMIT_SAMPLES = re.compile(r"\s*[0-9]+ +[0-9]+ +")
"""The numbers of the first and the last sample, which begin each text of TIMIT: `0 63488 She had`."""
MAX_NAMED = 12  # lists that an error names
LONGEST = 4 * LONGEST_TEXT + 1  # bytes of a transcript
SPEAKERS = (
    re.compile(r"([0-9]+)[-_][0-9]+[-_][0-9]+"),  # LibriSpeech and MLS: SPEAKER-CHAPTER-NUMBER, SPEAKER_BOOK_NUMBER
    re.compile(r"BAC[0-9]+(S[0-9]+)W[0-9]+"),  # AISHELL: BAC009S0764W0121
)


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
            return Listing(_of_users(names), lambda name: (path / name).open("rb").read(_max_bytes(name)))
        if path.suffix.lower() == ".zip":
            archive = zipfile.ZipFile(path)
            inside = {each.filename: each for each in named_members(archive)}
            return Listing(_of_users(sorted(inside)), lambda name: archive.open(inside[name]).read(_max_bytes(name)))
        members: dict[
            str, bytes
        ] = {}  # transcripts are kept, because going back in a compressed archive reads it again
        with tarfile.open(path) as tar:
            for member in tar:
                if member.isfile():
                    text = member.name.lower().endswith((*TRANSCRIPTS, LISTED)) and tar.extractfile(member)
                    members[member.name] = text.read(_max_bytes(member.name)) if text else b""
        return Listing(_of_users(sorted(members)), members.__getitem__)
    except (*DAMAGE, OSError) as error:
        raise no_corpus(path, f"cannot be read ({message_of(error, 100)})") from error


def _max_bytes(name: str) -> int:
    return LARGEST_TEXT if name.endswith(LISTED) or NAMED_LIST.search(name) else LONGEST


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
        table = next((name for name in listing.names if name.lower().endswith(COLUMNAR)), "")
        raise inside_a_table(f"{path}/{table}") if table else no_corpus(path, "holds no recordings")
    lists = lists_among(listing.names)
    if lists and not any(name.lower().endswith((*TRANSCRIPTS, LISTED)) for name in listing.names):
        raise _without_transcripts(path, lists)
    stems = {name: name.removesuffix(PurePosixPath(name).suffix) for name in recordings}
    listed: dict[str, str] = {}
    yield from _read_lists(path, listing, {*stems.values()}, listed)
    for name, stem in stems.items():
        beside = (stem + spelling for end in TRANSCRIPTS for spelling in (end, end.upper()))
        transcript = next((name for name in beside if name in names), None)
        speaker = None
        if stem in listed:
            text, speaker = listed[stem], _speaker(stem)
        elif transcript is None:
            yield name, f"there is no transcript beside it; expected {PurePosixPath(stem).name}.txt or .lab"
            continue
        else:
            try:
                lines = decoded_lines(_content(listing, transcript), transcript)
                if are_labels(lines):
                    raise BadInput(f"{transcript} has labels with times; expected only the words that are said")
                text = " ".join(lines)
            except BadInput as error:
                yield name, str(error)
                continue
            samples = TIMIT_SAMPLES.match(text)
            if samples and any(stem + end in names for end in TIMIT_LABELS):
                text, speaker = text[samples.end() :], PurePosixPath(stem).parent.name
        yield name, {"id": stem.removeprefix("./"), "audio": name, "text": text, "speaker": speaker}


def _without_transcripts(path: Path, lists: Sequence[str]) -> BadInput:
    """Returns the error for a folder or an archive whose texts are in lists with columns, each a corpus of its own."""
    omitted = [f"{len(lists) - MAX_NAMED} more"] if len(lists) > MAX_NAMED else []
    named, advice = enumerated([*lists[:MAX_NAMED], *omitted]), "give that list" if len(lists) == 1 else "give one"
    return BadInput(
        f"{path} has no transcripts beside its recordings, but the list{'s' * (len(lists) > 1)} {named}; "
        f"{'' if path.is_dir() else 'unpack it and '}{advice}"
    )


def _speaker(stem: str) -> str | None:
    found = (pattern.fullmatch(PurePosixPath(stem).name) for pattern in SPEAKERS)
    return next((match[1] for match in found if match), None)


def _read_lists(
    path: Path, listing: Listing, stems: Collection[str], listed: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Reads all lists of transcripts; yields what is wrong with their lines.

    Args:
        stems: the recordings without their endings.
        listed: gets the text of each recording that a list names.
    """
    for name in listing.names:
        if name.endswith(LISTED):
            folder = name.rpartition("/")[0]
            try:
                for _, stem, text in named_values(_content(listing, name), name):
                    listed[f"{folder}/{stem}" if folder else stem] = text
            except BadInput as error:
                yield name, str(error)
    for stem in sorted(listed.keys() - stems):
        yield stem, "there is no recording of this name, only its text"
    by_name: dict[str, list[str]] = defaultdict(list)
    for stem in sorted(stems):
        by_name[PurePosixPath(stem).name].append(stem)
    for name in listing.names:
        if NAMED_LIST.search(name) and name[: -len(".txt")] not in stems:
            try:
                yield from _read_named_list(name, _content(listing, name), by_name, listed)
            except BadInput as error:
                yield name, str(error)
    for beside_wav in _lists_beside_wav(path):
        yield from _read_named_list(beside_wav.name, beside_wav.read_bytes(), by_name, listed, of_more=True)


def _read_named_list(
    name: str, content: bytes, by_name: Mapping[str, list[str]], listed: dict[str, str], of_more: bool = False
) -> Iterator[tuple[str, str]]:
    """Reads a list whose recordings lie in any folder, those below the list's own first; yields faults of its lines.

    Args:
        by_name: the recordings, without their endings, by their names without folders.
        listed: gets the text of each recording.
        of_more: whether it also lists recordings that are no part of this corpus.
    """
    folder, count, missing, is_used = name.rpartition("/")[0], 0, [], False
    for number, recording, text in named_values(content, name):
        count += 1
        where, path = f"{name}, line {number}", PurePosixPath(recording)
        called = by_name.get(path.stem if path.suffix.lower() in SOUNDS else recording, [])
        stems = [stem for stem in called if stem.startswith(f"{folder}/")] or called
        is_used = is_used or bool(stems)
        if not stems:
            missing.append((where, f"there is no recording {recording!r:.80}, only its text"))
        elif len(stems) > 1:
            yield where, f"several recordings are called {recording!r:.80}: {stems[0]} and {stems[1]}; expected one"
        elif listed.setdefault(stems[0], text) != text:
            yield where, f"the recording {recording!r:.80} has another text already"
    if not is_used:
        yield name, f"none of its {count} lines begins with the name of a recording"
    elif not of_more:
        yield from missing


def _lists_beside_wav(path: Path) -> list[Path]:
    """Returns AISHELL's list for `wav`, or for `wav/test` or `wav/test/S0764`: it is in `transcript` beside `wav`."""
    folder = next((each for each in (path, *list(path.parents)[:2]) if each.name == WAV), None)
    if folder is None or not path.is_dir():
        return []
    return sorted(each for each in (folder.parent / BESIDE_WAV).glob("*.txt") if NAMED_LIST.search(each.name))


def _content(listing: Listing, name: str) -> bytes:
    try:
        return listing.read(name)
    except (*DAMAGE, OSError, RuntimeError) as error:
        reason = "it needs a password" if needs_password(error) else message_of(error, 100)
        raise BadInput(f"{name} cannot be read ({reason})") from error


def is_archive(path: Path) -> bool:
    """Returns whether a file is an archive, by its name."""
    return path.name.lower().endswith(ARCHIVES)
