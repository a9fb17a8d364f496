"""Finds out which format a manifest has, and opens it."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TextIO

from workbench.core.errors import BadInput, message_of
from workbench.evaluation.addresses import is_address, opened_address, without_query
from workbench.evaluation.manifests.corpus import (
    ARROW,
    OBJECTS,
    TABLES,
    WHOLE,
    Bad,
    FoundCorpus,
    Rows,
    Wanted,
    check_whole,
    checked,
    inside_a_table,
    no_corpus,
)
from workbench.evaluation.manifests.folders import folder_rows, is_archive
from workbench.evaluation.manifests.kaldi import KALDI, SEGMENTS, TEXT, kaldi_rows
from workbench.evaluation.manifests.layouts import ljspeech, stm
from workbench.evaluation.manifests.listing import MAX_LINE_BYTES
from workbench.evaluation.manifests.parquet import file_rows
from workbench.evaluation.manifests.tables import is_cut, json_rows, table_rows
from workbench.evaluation.parquet_sounds import PARQUET
from workbench.evaluation.places import ARCHIVES, DAMAGE, SOUNDS
from workbench.evaluation.rows import Utterance

MAX_LINE_CHARACTERS = 8 << 20  # characters: more than the longest transcript, each character of it escaped
LISTS = ("metadata.csv", "metadata.jsonl", "metadata.tsv", "metadata.parquet")  # of a folder in Hugging Face's form
KINDS = {  # how files begin that are not text
    b"PAR1": "is a Parquet file; name it with the ending .parquet",
    b"PK\x03\x04": "is a zip file or a spreadsheet",
    b"\x1f\x8b": "is compressed",
    b"RIFF": "is a sound file",
    b"fLaC": "is a sound file",
    b"ARROW1": "is an Arrow file",
    b"%PDF": "is a PDF",
    b"SQLite": "is a data base",
    b"\x89HDF": "is an HDF5 file",
}


def read_manifest(manifest: str | Path, wanted: Wanted = WHOLE) -> FoundCorpus:
    """Returns a corpus, whose rows are read when they are asked for.

    Args:
        wanted: what of the corpus is wanted.

    Raises `BadInput`, in one sentence, if nothing can be read. `FoundCorpus.rows` raises it too, if a file turns out to
    be no list of recordings.
    """
    text = str(manifest)
    if is_address(text):
        place = without_query(text)
        name = PurePosixPath(place).name
        return _listed(place, place.rpartition("/")[0], name, lambda: opened_address(text), wanted)
    if not text:
        raise no_corpus("the path of the corpus", "is empty")
    path = Path(text).expanduser()
    try:
        path = path.absolute()
        if "\0" in text or not path.exists():
            raise no_corpus(text[:200], "is not there")
        if path.is_dir():
            return _of_folder(path, wanted)
        if not path.is_file():
            raise no_corpus(path, "is not an ordinary file")
        if path.stat().st_size == 0:
            raise no_corpus(path, "is empty")
    except (OSError, ValueError) as error:
        raise no_corpus(text[:200], f"cannot be read ({message_of(error, 100)})") from error
    if is_archive(path):
        return _found(str(path), str(path), "folder", lambda: folder_rows(path, wanted))
    if path.suffix.lower() in SOUNDS:
        raise no_corpus(path, "is a sound file")
    if path.name.lower().endswith(stm.ENDING):
        raise BadInput(f"{path} is the list of a folder; name the folder that holds it and its recordings")
    if path.name == ljspeech.NAME and _is_ljspeech(path):
        return _found(str(path.parent), str(path.parent), "folder", lambda: folder_rows(path.parent, wanted))
    if path.name in (KALDI, TEXT, SEGMENTS) and (path.parent / KALDI).is_file():
        raise BadInput(f"{path} is a file of a Kaldi data directory; name the directory")
    return _listed(str(path), str(path.parent), path.name, lambda: path.open("rb"), wanted)


def _is_ljspeech(path: Path) -> bool:
    with path.open("rb") as file:
        return ljspeech.is_ljspeech(file.readline(MAX_LINE_BYTES))


def _of_folder(path: Path, wanted: Wanted) -> FoundCorpus:
    if (path / KALDI).is_file():
        check_whole(path, wanted)
        return _found(str(path), str(path), "kaldi", lambda: kaldi_rows(path))
    for name in LISTS:
        if (path / name).is_file():
            return read_manifest(path / name, wanted)
    if (path / TEXT).is_file() and (path / SEGMENTS).is_file():
        raise no_corpus(path, "is a Kaldi data directory without wav.scp")
    return _found(str(path), str(path), "folder", lambda: folder_rows(path, wanted))


def _listed(path: str, root: str, name: str, open_file: Callable[[], BinaryIO], wanted: Wanted) -> FoundCorpus:
    """Returns the corpus of a file with a row on each line."""
    stem = name.lower().removesuffix(".gz")
    suffix = PurePosixPath(stem).suffix
    check_whole(path, wanted, columns=True)
    if suffix == PARQUET:
        return _found(path, root, "parquet", lambda: file_rows(root, [name], wanted))
    if suffix == ARROW:
        raise inside_a_table(path)
    if suffix not in TABLES and suffix not in OBJECTS:
        raise no_corpus(path, f"has the ending {suffix!r:.20}, which is of no known format")
    as_text = partial(_text, path, open_file, packed=name.lower().endswith(".gz"))
    if suffix in TABLES:
        return _found(path, root, suffix[1:], lambda: _table(as_text, name, path, suffix == ".tsv", wanted))
    with as_text() as file:
        cuts = _first_is_cut(file, path)
    if cuts:
        check_whole(path, wanted)
    return _found(path, root, "lhotse" if cuts else "jsonl", lambda: _objects(as_text, name, wanted))


def _first_is_cut(file: TextIO, path: str) -> bool:
    """Returns whether a file of JSON lines is a cut set; raises `BadInput` where its first line is not an object."""
    first = next((line for line in _decoded(file, path) if line.strip()), "")
    if not first:
        raise no_corpus(path, "holds no rows")
    try:
        first_row = json.loads(first.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        if first.strip() in ("[", "{", "[{"):
            raise no_corpus(path, "is one JSON document over several lines, not an object on each line") from None
        if first.strip().lower().endswith(ARCHIVES):
            raise BadInput(f"{path} is a list of archives; name one of them, as each is a corpus of its own") from None
        return False
    if isinstance(first_row, list):
        raise no_corpus(path, "is one JSON list, not an object on each line")
    return isinstance(first_row, dict) and is_cut(first_row)


def _text(path: str, open_file: Callable[[], BinaryIO], packed: bool) -> TextIO:
    try:
        file = open_file()
        head = file.read(8)
        for magic, fault in KINDS.items():
            if head.startswith(magic) and not (packed and fault == "is compressed"):
                file.close()
                raise no_corpus(path, fault)
        if not packed and (head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head):
            file.close()
            raise _not_utf8(path)
        file.seek(0)
        unpacked = gzip.GzipFile(fileobj=file) if packed else file
        text = _BoundedLines(unpacked, encoding="utf-8", newline="")
        text.path = path
        return text
    except OSError as error:
        raise no_corpus(path, f"cannot be read ({message_of(error, 100)})") from error


class _BoundedLines(io.TextIOWrapper):
    """A text, read line by line. Raises `BadInput` for a line that is too long for the memory."""

    path = ""

    def __next__(self) -> str:  # type: ignore[override]
        line = self.readline(MAX_LINE_CHARACTERS)
        if not line:
            raise StopIteration
        if len(line) == MAX_LINE_CHARACTERS:
            raise no_corpus(self.path, f"has a line of more than {MAX_LINE_CHARACTERS:,} characters")
        return line


def _not_utf8(path: str, details: str = "") -> BadInput:
    return BadInput(f'{path} is not written in UTF-8{details}; save it in that encoding, in Excel as "CSV UTF-8"')


def _decoded(file: TextIO, path: str) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError as error:
        raise _not_utf8(path, f" ({error.reason} at byte {error.start})") from error
    except (*DAMAGE, OSError) as error:
        raise no_corpus(path, f"cannot be read ({message_of(error, 100)})") from error


def _table(as_text: Callable[[], TextIO], name: str, path: str, tabs: bool, wanted: Wanted) -> Rows:
    with as_text() as file:
        yield from table_rows(file, name, path, tabs, wanted.text_column)


def _objects(as_text: Callable[[], TextIO], name: str, wanted: Wanted) -> Rows:
    with as_text() as file:
        yield from json_rows(file, name, wanted.text_column)


def _found(path: str, root: str, form: str, rows: Callable[[], Rows]) -> FoundCorpus:
    return FoundCorpus(path, root, form, lambda: _checked_rows(path, root, rows))


def _checked_rows(path: str, root: str, rows: Callable[[], Rows]) -> Iterator[Utterance | Bad]:
    """Yields checked rows; raises `BadInput` at the end where none of them can be used."""
    good, bad, first = 0, 0, ""
    try:
        for row in checked(rows(), root):
            if isinstance(row, Bad):
                bad += 1
                first = first or f"{row.where}: {row.reason}"
            else:
                good += 1
            yield row
    except UnicodeDecodeError as error:
        raise _not_utf8(path, f" ({error.reason} at byte {error.start})") from error
    except (*DAMAGE, OSError) as error:
        raise no_corpus(path, f"cannot be read ({message_of(error, 100)})") from error
    if not good:
        raise BadInput(f"{path} has no row that can be used" + (f" of {bad}; {first}" if bad else "; it holds none"))
