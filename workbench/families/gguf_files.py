"""Finds the family of a GGUF file by the architecture that it names. It opens no weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.families import FAMILIES, Family
from workbench.formats.gguf_file import GgufFile, is_gguf, read_gguf, read_own_gguf

HALF = "workbench.language.architecture"
FORMAT_VERSION = 1  # of our own files
CONVERTER = 2  # increases when a conversion writes something else, so that kept files are made again
NANO_LANGUAGES = ("qwen3", "qwen2")
NANO_ENCODER = "funasr-sensevoice-encoder"  # Fun-ASR-Nano without its language half, which is a file of its own


def family_of_gguf(path: str | Path) -> Family:
    """Returns the family of a GGUF file; raises `BadInput` for a damaged file or an unknown architecture."""
    return family_of_file(read_own_gguf(path))


def family_of_file(file: GgufFile) -> Family:
    """Returns the family of a GGUF file that has been read; raises `BadInput` for an unknown architecture."""
    known = architectures()
    if file.architecture not in known:
        raise BadInput(f"{file.name} is of architecture {file.architecture!r:.80}; expected one of {', '.join(known)}")
    return known[file.architecture]


def architectures() -> Mapping[str, Family]:
    """Returns the families by `general.architecture`: FunASR's and our names for speech models, llama.cpp's names for
    language models, and the names of other packages."""
    return {name: family for family in FAMILIES.values() for name in family.gguf.architectures}


def has_other_half(file: GgufFile) -> bool:
    """Returns whether the file holds a speech model together with its language model."""
    return HALF in file.metadata


def find_language_file(path: str | Path) -> Path:
    """Returns the GGUF file of the Qwen language model in the folder of Fun-ASR-Nano's encoder.

    Ignores files that cannot be read as GGUF. Raises `BadInput` if there is none, or several.
    """
    path = Path(path)
    found = [other for other in sorted(path.parent.glob("*.gguf")) if other != path and _is_language_half(other)]
    if not found:
        raise BadInput(
            f"{path.name} holds only the audio encoder of Fun-ASR-Nano; put the GGUF file of its language model, such "
            "as qwen3-0.6b-q8_0.gguf, into the same folder"
        )
    if len(found) > 1:
        names = ", ".join(other.name for other in found)
        raise BadInput(
            f"the folder of {path.name} has several language models ({names}); leave one of them there, or put "
            f"{path.name} and its own language model into another folder"
        )
    return found[0]


def _is_language_half(path: Path) -> bool:
    if not is_gguf(path):
        return False
    try:
        return read_gguf(path).architecture in NANO_LANGUAGES
    except BadInput:
        return False
