"""Manifests that are folders or archives: recordings with their transcripts beside, or with lists of transcripts."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath

from workbench.core.errors import BadInput
from workbench.core.phrases import enumerated
from workbench.evaluation.manifests.corpus import (
    ARROW,
    WHOLE,
    Rows,
    Wanted,
    check_whole,
    inside_a_table,
    is_sound,
    lists_among,
    no_corpus,
    with_slashes,
)
from workbench.evaluation.manifests.layouts import TRANSCRIPT_LISTS, TranscriptList, aishell, stm, vctk
from workbench.evaluation.manifests.listing import MAX_LINE_BYTES, Listing, composed, content_of, listing_of
from workbench.evaluation.manifests.named_values import are_labels, decoded_lines, named_values
from workbench.evaluation.manifests.parquet import is_parquet, parquet_rows
from workbench.evaluation.places import ARCHIVES
from workbench.formats.text_files import MAX_TEXT_BYTES

LIBRITTS = ".normalized.txt"
TRANSCRIPTS = (LIBRITTS, ".txt", ".lab")  # endings of a transcript beside its recording, the best first
LISTED = ".trans.txt"  # LibriSpeech: the name of a recording of that folder and its text on each line
WAV, BESIDE_WAV = "wav", "transcript"  # AISHELL: the folder of its recordings, and the folder of its list beside that
TIMIT_LABELS = (".PHN", ".phn", ".WRD", ".wrd")  # endings of files beside a recording of TIMIT
TIMIT_SAMPLES = re.compile(r"\s*[0-9]+ +[0-9]+ +")
"""The numbers of the first and the last sample, which begin each text of TIMIT: `0 63488 She had`."""
MAX_NAMED = 12  # lists that an error names
LIBRISPEECH = re.compile(r"([0-9]+)(?:[-_][0-9]+){2,3}")
"""The names in LibriSpeech, MLS and LibriTTS: the speaker, the chapter or book, and one or two numbers."""


@dataclass
class _Texts:
    """What the lists and the folders of a corpus say about its recordings, which are named without their endings."""

    stems: Sequence[str]
    listed: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # the text and the speaker of a recording
    segmented: set[str] = field(default_factory=set)  # recordings whose texts have times

    def __post_init__(self) -> None:
        self.by_path = {composed(stem): stem for stem in self.stems}
        self.by_name: dict[str, list[str]] = defaultdict(list)
        for stem in sorted({*self.stems}):
            self.by_name[composed(posixpath.basename(stem))].append(stem)


def folder_rows(path: Path, wanted: Wanted = WHOLE) -> Rows:
    """Yields the recordings of a folder or an archive with their transcripts, in the order of their names.

    Raises `BadInput` if there are none, or only a list of them that has to be named itself.
    """
    listing = listing_of(path, _max_bytes)
    recordings = [name for name in listing.names if is_sound(name)]
    if not recordings:
        yield from _tables(path, listing, wanted)
        return
    check_whole(path, wanted)
    stems = {name: posixpath.splitext(name)[0] for name in recordings}
    texts = _Texts(list(stems.values()))
    forms = {name: form for name in listing.names if (form := _form_of(listing, name, texts))}
    lists = [name for name in lists_among(listing.names) if name not in forms]
    endings = (*TRANSCRIPTS, LISTED, stm.ENDING)
    if lists and not forms and not any(name.lower().endswith(endings) for name in listing.names):
        raise _without_transcripts(path, lists)
    yield from _read_lists(path, listing, forms, texts)
    yield from _read_segments(listing, recordings, texts)
    names = {composed(name): name for name in listing.names}
    left_out = vctk.second_microphones(texts.stems, names)
    for name, stem in stems.items():
        if stem in texts.listed:
            text, speaker = texts.listed[stem]
            yield name, _row(stem, name, text, speaker or _speaker(stem))
        elif stem not in texts.segmented and stem not in left_out:
            yield name, _beside(listing, names, name, stem)


def _tables(path: Path, listing: Listing, wanted: Wanted) -> Rows:
    """Yields the recordings that are inside the tables of a folder."""
    tables = [name for name in listing.names if is_parquet(name)]
    if tables and not path.is_dir():
        raise BadInput(f"{path} holds Parquet files; unpack it and give the folder")
    if tables:
        yield from parquet_rows(str(path), tables, wanted)
        return
    table = next((name for name in listing.names if name.lower().endswith(ARROW)), "")
    if table:
        raise inside_a_table(f"{path}/{table}")
    archives = [name for name in listing.names if is_archive(PurePosixPath(name))]
    if archives:
        several = len(archives) > 1
        description = f"{len(archives)} archives, such as" if several else "the archive"
        advice = "unpack them, or give one of them" if several else "unpack it, or give it alone"
        raise BadInput(f"{path} holds no recordings, but {description} {archives[0]}; {advice}")
    raise no_corpus(path, "holds no recordings")


def _row(stem: str, name: str, text: str, speaker: str | None) -> Mapping[str, str | None]:
    return {"id": stem.removeprefix("./"), "audio": name, "text": text, "speaker": speaker}


def _beside(listing: Listing, names: Mapping[str, str], name: str, stem: str) -> Mapping[str, str | None] | str:
    """Returns the row of a recording with a transcript of its own, or the reason why there is none.

    Args:
        names: of all files, by their names with composed accents.
    """
    elsewhere = vctk.transcript_of(stem)
    spellings = [stem + spelling for end in TRANSCRIPTS for spelling in (end, end.upper())]
    places = [composed(each) for each in (*spellings, *([elsewhere] if elsewhere else []))]
    transcript = next((names[each] for each in places if each in names), None)
    if transcript is None:
        expected = f"{elsewhere} for it" if elsewhere else f"{PurePosixPath(stem).name}.txt or .lab"
        return f"there is no transcript beside it; expected {expected}"
    try:
        lines = decoded_lines(content_of(listing, transcript), transcript)
        if are_labels(lines):
            return f"{transcript} has labels with times; expected only the words that are said"
    except BadInput as error:
        return str(error)
    text = " ".join(lines)
    speaker = vctk.speaker_of(stem) if transcript == elsewhere else None
    if transcript.endswith(LIBRITTS):
        speaker = _speaker(stem)
    samples = TIMIT_SAMPLES.match(text)
    if samples and any(composed(stem + end) in names for end in TIMIT_LABELS):
        text, speaker = text[samples.end() :], PurePosixPath(stem).parent.name
    return _row(stem, name, text, speaker)


def _max_bytes(name: str) -> int:
    return MAX_TEXT_BYTES if is_transcript_list(name) else MAX_LINE_BYTES


def is_transcript_list(name: str) -> bool:
    """Returns whether a file lists the texts of several recordings, by its name."""
    return name.endswith((LISTED, stm.ENDING)) or any(each.name.fullmatch(name) for each in TRANSCRIPT_LISTS)


def _form_of(listing: Listing, name: str, texts: _Texts) -> TranscriptList | None:
    """Returns the form of a list of transcripts that names recordings in any folder, or None for another file."""
    forms = [each for each in TRANSCRIPT_LISTS if each.name.fullmatch(name)]
    if not forms or composed(posixpath.splitext(name)[0]) in texts.by_path:  # the transcript of one recording
        return None
    try:
        return next((each for each in forms if each.is_one is None or each.is_one(content_of(listing, name))), None)
    except BadInput:
        return forms[0]  # reading it says why


def _without_transcripts(path: Path, lists: Sequence[str]) -> BadInput:
    """Returns the error for a folder or an archive whose texts are in lists with columns, each a corpus of its own."""
    omitted = [f"{len(lists) - MAX_NAMED} more"] if len(lists) > MAX_NAMED else []
    list_names, advice = enumerated([*lists[:MAX_NAMED], *omitted]), "give that list" if len(lists) == 1 else "give one"
    return BadInput(
        f"{path} has no transcripts beside its recordings, but the list{'s' * (len(lists) > 1)} {list_names}; "
        f"{'' if path.is_dir() else 'unpack it and '}{advice}"
    )


def _speaker(stem: str) -> str | None:
    name = posixpath.basename(stem)
    book = LIBRISPEECH.fullmatch(name)
    return book[1] if book else aishell.speaker_of(name)


def _read_lists(
    path: Path, listing: Listing, forms: Mapping[str, TranscriptList], texts: _Texts
) -> Iterator[tuple[str, str]]:
    """Reads all lists of transcripts; yields what is wrong with their lines.

    Args:
        forms: the lists that name recordings in any folder, and their forms.
        texts: gets the text of each recording that a list names.
    """
    for name in listing.names:
        if name.endswith(LISTED):
            folder = name.rpartition("/")[0]
            try:
                for _, stem, text in named_values(content_of(listing, name), name):
                    place = f"{folder}/{stem}" if folder else stem
                    texts.listed[texts.by_path.get(composed(place), place)] = text, None
            except BadInput as error:
                yield name, str(error)
    for stem in sorted(texts.listed.keys() - {*texts.stems}):
        yield stem, "there is no recording of this name, only its text"
    for name, form in forms.items():
        try:
            yield from _read_list(form, name, content_of(listing, name), texts)
        except BadInput as error:
            yield name, str(error)
    for beside_wav in _lists_beside_wav(path):
        yield from _read_list(aishell.AISHELL_1, beside_wav.name, beside_wav.read_bytes(), texts, of_more=True)


def _read_list(
    form: TranscriptList, name: str, content: bytes, texts: _Texts, of_more: bool = False
) -> Iterator[tuple[str, str]]:
    """Reads a list whose recordings lie in any folder, those below the list's own first; yields faults of its lines.

    Args:
        texts: gets the text of each recording.
        of_more: whether it also lists recordings that are no part of this corpus.
    """
    folder, count, missing, is_used = name.rpartition("/")[0], 0, [], False
    for number, recording, text, speaker in form.lines(content, name):
        count += 1
        where, file = f"{name}, line {number}", posixpath.basename(with_slashes(recording))
        called = texts.by_name.get(composed(posixpath.splitext(file)[0] if is_sound(file) else file), [])
        stems = [stem for stem in called if stem.startswith(f"{folder}/")] or called
        is_used = is_used or bool(stems)
        if not stems:
            missing.append((where, f"there is no recording {recording!r:.80}, only its text"))
        elif text is None:
            yield where, "it is not of the form of this list, so its text is unknown"
        elif len(stems) > 1:
            yield where, f"several recordings are called {recording!r:.80}: {stems[0]} and {stems[1]}; expected one"
        elif texts.listed.setdefault(stems[0], (text, speaker))[0] != text:
            yield where, f"the recording {recording!r:.80} has another text already"
    if not is_used:
        yield name, f"none of its {count} lines begins with the name of a recording"
    elif not of_more:
        yield from missing


def _read_segments(listing: Listing, recordings: Sequence[str], texts: _Texts) -> Rows:
    """Yields the segments of recordings whose texts have times."""
    by_name: dict[str, list[str]] = defaultdict(list)
    files = [name for name in listing.names if name.lower().endswith(stm.ENDING)]
    for name in recordings if files else ():
        by_name[composed(posixpath.splitext(posixpath.basename(name))[0])].append(name)
    for name in files:
        try:
            for where, row in stm.stm_rows(name, content_of(listing, name), by_name):
                if not isinstance(row, str):
                    texts.segmented.add(posixpath.splitext(row["audio"])[0])
                yield where, row
        except BadInput as error:
            yield name, str(error)


def _lists_beside_wav(path: Path) -> list[Path]:
    """Returns AISHELL's list for `wav`, or for `wav/test` or `wav/test/S0764`: it is in `transcript` beside `wav`."""
    folder = next((each for each in (path, *list(path.parents)[:2]) if each.name == WAV), None)
    if folder is None or not path.is_dir():
        return []
    lists = (folder.parent / BESIDE_WAV).glob("*.txt")
    return sorted(each for each in lists if aishell.AISHELL_1.name.fullmatch(each.name))


def is_archive(path: PurePath) -> bool:
    """Returns whether a file is an archive, by its name."""
    return path.name.lower().endswith(ARCHIVES)
