"""The small files of a checkpoint that travel inside a GGUF file: configuration, vocabulary, CMVN, tokenizer.

They go along byte for byte, so that a checkpoint is read and checked by the same code whichever form it is in. Weights
and model cards stay behind. This file opens nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from workbench.conversion.plan import QUANTIZATION, Value
from workbench.core.errors import BadInput
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
LARGEST_FILE = 64 << 20  # bytes; the tokenizer of a large language model has a sixth of that


def small_files(directory: Path, patterns: Iterable[str], folder: str = "") -> dict[str, Path]:
    """Files of a directory that match the patterns, by the name they get: inside `folder`, if that is given."""
    named = sorted(path for path in directory.iterdir() if path.is_file())
    found = [path for path in named if any(fnmatchcase(path.name, pattern) for pattern in patterns)]
    return {f"{folder}/{path.name}" if folder else path.name: path for path in found}


def funasr_files(directory: Path, *named: Path | None) -> dict[str, Path]:
    """The small files of a FunASR directory, those that its configuration names included."""
    inside = {path.relative_to(directory).as_posix(): path for path in named if path and path.is_relative_to(directory)}
    return {**small_files(directory, FUNASR_FILES), **inside}


def travelling(family: str, files: Mapping[str, Path | bytes]) -> dict[str, Value]:
    """The keys that every file of ours has: which family it is of, and the small files."""
    values: dict[str, Value] = {"workbench.version": FORMAT_VERSION, "workbench.family": family, QUANTIZATION: ""}
    contents = {name: source if isinstance(source, bytes) else _read(source) for name, source in files.items()}
    kept = {name: content for name, content in contents.items() if content}
    values["workbench.files"] = list(kept)
    for number, content in enumerate(kept.values()):
        values[f"workbench.file.{number}"] = _stored(content)
    return values


def _stored(content: bytes) -> Value:
    """As a text where it is UTF-8: readers of GGUF take bytes one by one, which for a tokenizer takes minutes."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content


def _read(path: Path) -> bytes:
    where = f"{path.parent.name}/{path.name}"
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise BadInput(f"{where} is {size / 1e6:.0f} MB long, which is too much for a file of text beside weights")
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{where} cannot be read: {error.strerror}") from error
