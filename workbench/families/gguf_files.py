"""Finds the family of a GGUF file by the architecture that it names. It opens no weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.families import FAMILIES, Family
from workbench.formats.gguf_file import GgufFile, is_gguf, read_gguf, read_own_gguf

LANGUAGE_ARCHITECTURE = "workbench.language.architecture"
FORMAT_VERSION = 1  # of our own files
CONVERTER = 2  # increases when a conversion writes something else, so that kept files are made again
NANO_LANGUAGES = ("qwen3", "qwen2")
NANO_ENCODER = "funasr-sensevoice-encoder"  # Fun-ASR-Nano without its language half, which is a file of its own


def family_of_gguf(path: str | Path) -> Family:
    """Returns the family of a GGUF file; raises `BadInput` for a damaged file or an unknown architecture."""
    return family_of_file(read_own_gguf(path))


def family_of_file(file: GgufFile) -> Family:
    """Returns the family of a GGUF file that has been read; raises `BadInput` for an unknown architecture."""
    families = architectures()
    if file.architecture not in families:
        raise BadInput(
            f"{file.name} is of architecture {file.architecture!r:.80}; expected one of {', '.join(families)}"
        )
    return families[file.architecture]


def architectures() -> Mapping[str, Family]:
    """Returns the families by `general.architecture`: FunASR's and our names for speech models, llama.cpp's names for
    language models, and the names of other packages."""
    return {name: family for family in FAMILIES.values() for name in family.gguf.architectures}


def contains_language_model(file: GgufFile) -> bool:
    """Returns whether the file holds a speech model together with its language model."""
    return LANGUAGE_ARCHITECTURE in file.metadata


def find_language_file(path: str | Path) -> Path:
    """Returns the GGUF file of the Qwen language model in the folder of Fun-ASR-Nano's encoder.

    Ignores files that cannot be read as GGUF. Raises `BadInput` if there is none, or several.
    """
    path = Path(path)
    files = [
        candidate
        for candidate in sorted(path.parent.glob("*.gguf"))
        if candidate != path and _is_nano_language_model(candidate)
    ]
    if not files:
        raise BadInput(
            f"{path.name} holds only the audio encoder of Fun-ASR-Nano; put the GGUF file of its language model, such "
            "as qwen3-0.6b-q8_0.gguf, into the same folder"
        )
    if len(files) > 1:
        names = ", ".join(candidate.name for candidate in files)
        raise BadInput(
            f"the folder of {path.name} has several language models ({names}); leave one of them there, or put "
            f"{path.name} and its own language model into another folder"
        )
    return files[0]


def _is_nano_language_model(path: Path) -> bool:
    if not is_gguf(path):
        return False
    try:
        return read_gguf(path).architecture in NANO_LANGUAGES
    except BadInput:
        return False
