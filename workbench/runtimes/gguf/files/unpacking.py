"""Unpacks a checkpoint's small files from a GGUF file into a directory, so that the families' readers can read them.

This project's files contain them byte for byte. For files in the layouts of FunASR and llama.cpp, equivalent files are
written from keys and the shapes of tensors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import numpy as np

from workbench.core.errors import BadInput, Unavailable
from workbench.families.gguf_files import FORMAT_VERSION, NANO_ENCODER, NANO_LANGUAGES, find_language_file
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.runtimes.gguf.files.funasr_files import funasr_files, layout_of, vocabulary_note
from workbench.runtimes.gguf.files.language_file import is_language_file
from workbench.runtimes.gguf.files.language_files import language_files
from workbench.runtimes.gguf.networks.cmvn import read_cmvn

FILES, FILE = "workbench.files", "workbench.file.{}"

# The directory of a large language model has tens of small files with about 20 MB.
MAX_FILES = 256
MAX_BYTES = 256 << 20
_MAX_NAME_BYTES = 200


@contextmanager
def unpacked(file: GgufFile, language: GgufFile | None = None) -> Iterator[Path]:
    """Yields a directory with the configuration, vocabulary, CMVN and tokenizer of a file's checkpoint.

    The directory has the name of the file, for messages, and is deleted when the context ends.

    Args:
        language: the language model's file for FunASR's encoder file of Fun-ASR-Nano; by default the one beside it.

    Raises `BadInput` for contradictory files and for names and sizes that no checkpoint has, `Unavailable` if there is
    no room.
    """
    files = _files(file, language)
    try:
        folder = tempfile.TemporaryDirectory(prefix="workbench-", ignore_cleanup_errors=True)
    except OSError as error:
        raise Unavailable(f"there is no room to unpack the files in {file.name}: {error.strerror}") from error
    with folder as path:
        directory = Path(path) / file.name
        _write(files, directory, file.name)
        yield directory


def read_gguf_pair(path: str | Path, language: Path | None = None) -> tuple[GgufFile, GgufFile]:
    """Returns the files of the audio encoder and of the language model; the same file twice if it holds both.

    Args:
        language: the language model's file; by default the one beside FunASR's encoder file.
    """
    encoder = read_gguf(path)
    if encoder.architecture != NANO_ENCODER:
        return encoder, encoder
    language_file = read_gguf(language or find_language_file(encoder.path))
    if language_file.architecture not in NANO_LANGUAGES:
        raise BadInput(
            f"{language_file.name} is of architecture {language_file.architecture!r:.80}; "
            "expected a language model of Qwen"
        )
    return encoder, language_file


def notes(file: GgufFile) -> tuple[str, ...]:
    """Returns notes about the file for the reader of a transcript, a sentence each; none for most files."""
    return tuple(note for note in (vocabulary_note(file), read_cmvn(file)[1]) if note)


def _files(file: GgufFile, language: GgufFile | None) -> dict[str, bytes]:
    if FILES in file.metadata:
        return _embedded(file)
    if file.architecture == NANO_ENCODER:
        language = language or read_gguf_pair(file.path)[1]
        language_contents = {f"{language.name}/{name}": content for name, content in language_files(language).items()}
        return {**funasr_files(file, language.name), **language_contents}
    if layout_of(file):
        return funasr_files(file)
    if is_language_file(file):
        return language_files(file)
    raise BadInput(f"{file.name} carries no files of a checkpoint ({FILES}), and is in no layout that does without")


def _embedded(file: GgufFile) -> dict[str, bytes]:
    version = file.whole("workbench.version", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise BadInput(
            f"{file.name} is of format version {version}; expected {FORMAT_VERSION}: convert the model again"
        )
    count = file.length(FILES)
    names = file.texts(FILES) or [] if count is None or count <= MAX_FILES else None
    if names is None:
        raise BadInput(f"{file.name} carries {count} files; expected at most {MAX_FILES}")
    if len(set(names)) < len(names):
        raise BadInput(f"{file.name} carries a file twice; expected different names in {FILES}")
    for name in names:
        _check_name(name, file.name)
    spans = [file.metadata.span(FILE.format(number)) for number in range(len(names))]
    sizes = [span.end - span.first for span in spans if span]
    if sum(sizes) > MAX_BYTES:
        raise BadInput(f"{file.name} carries files of {sum(sizes) >> 20} MB; expected at most {MAX_BYTES >> 20} MB")
    return {name: _content(file, FILE.format(number), name) for number, name in enumerate(names)}


def _content(file: GgufFile, key: str, name: str) -> bytes:
    """Returns a file's bytes. UTF-8 is stored as a string, which other readers of GGUF read faster; the rest as u8."""
    span = file.metadata.span(key)
    if (span is not None and span.count is None) or (span is None and isinstance(file.metadata.get(key), str)):
        return file.text(key).encode()
    content = file.numbers(key)
    if content is None:
        raise BadInput(f"{file.name} names the file {name}, and has no {key}")
    if content.dtype != np.uint8:
        raise BadInput(f"{key} in {file.name} is an array of {content.dtype}; expected bytes, the file {name}")
    return content.tobytes()


def _check_name(name: str, where: str) -> None:
    """Raises `BadInput` for a name that is not plainly a file inside the directory, on any system."""
    parts = PurePosixPath(name).parts
    has_plain_parts = all(part.strip(". ") and part == part.strip(" ") for part in parts)
    has_unsafe_letters = not name.isprintable() or any(letter in name for letter in '\\:*?"<>|')
    if (
        not parts
        or "/".join(parts) != name
        or not has_plain_parts
        or has_unsafe_letters
        or len(name.encode()) > _MAX_NAME_BYTES
    ):
        raise BadInput(
            f"{where} carries a file named {name!r:.80}; expected a relative path such as tokenizer/vocab.json"
        )


def _write(files: dict[str, bytes], directory: Path, where: str) -> None:
    try:
        directory.mkdir()
        for name, content in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(content)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadInput(f"{where} carries files whose names exclude each other, such as {name!r:.80}") from error
    except OSError as error:
        raise Unavailable(f"the files in {where} cannot be unpacked: {error.strerror}") from error
