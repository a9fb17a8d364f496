"""The small files of a checkpoint that a GGUF file includes: configuration, vocabulary, CMVN, tokenizer.

They are stored byte for byte, so that the same code reads and checks a checkpoint in every form. Weights and model
cards are left out. This file imports no heavy packages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from workbench.conversion.plan import QUANTIZATION, Value
from workbench.core.errors import BadInput
from workbench.core.phrases import name_in_folder
from workbench.families.funasr import configuration_file
from workbench.families.gguf_files import FORMAT_VERSION

FUNASR_FILES = ("config.yaml", "configuration.json", "tokens.json", "tokens.txt", "*.bpe.model", "am.mvn", "seg_dict")
LANGUAGE_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer*.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
    "*.jinja",
)
MAX_FILE_BYTES = 64 << 20  # the tokenizer of a large language model has a sixth of that


def small_files(directory: Path, patterns: Iterable[str], folder: str = "") -> dict[str, Path]:
    """Returns the files of a directory that match the patterns, by their new names; with `folder`, inside that
    folder.
    """
    files = sorted(path for path in directory.iterdir() if path.is_file())
    matching = [path for path in files if any(fnmatchcase(path.name, pattern) for pattern in patterns)]
    return {f"{folder}/{path.name}" if folder else path.name: path for path in matching}


def funasr_files(directory: Path, *paths: Path | None) -> dict[str, Path]:
    """Returns the small files of a FunASR directory, including those that its configuration names.

    Raises `BadInput` for a named file outside the directory: the GGUF file would not work on another machine.
    """
    configuration = configuration_file(directory)
    named = [path for path in (configuration if configuration.is_file() else None, *paths) if path]
    places = {path: path.parent.resolve() / path.name for path in named}  # a link to a file elsewhere is inside
    for path, place in places.items():
        if not place.is_relative_to(directory.resolve()):
            raise BadInput(
                f"the configuration of {directory.name} names {path}, which is outside the directory; copy the file "
                "into it, and name the copy"
            )
    named_files = {place.relative_to(directory.resolve()).as_posix(): path for path, place in places.items()}
    return {**small_files(directory, FUNASR_FILES), **named_files}


def embedded_files(family: str, files: Mapping[str, Path | bytes]) -> dict[str, Value]:
    """Returns the keys of every file of this project: its family and the small files."""
    values: dict[str, Value] = {"workbench.version": FORMAT_VERSION, "workbench.family": family, QUANTIZATION: ""}
    contents = {name: source if isinstance(source, bytes) else _read(source) for name, source in files.items()}
    stored = {name: content for name, content in contents.items() if content}
    values["workbench.files"] = list(stored)
    for number, content in enumerate(stored.values()):
        values[f"workbench.file.{number}"] = _stored(content)
    return values


def _stored(content: bytes) -> Value:
    """Returns UTF-8 as text: readers of GGUF read an array of bytes one by one, which takes minutes for a tokenizer."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content


def _read(path: Path) -> bytes:
    place = name_in_folder(path)
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise BadInput(f"{place} is {size / 1e6:.0f} MB long, which is too much for a file of text beside weights")
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{place} cannot be read: {error.strerror}") from error
