"""Which family a GGUF file holds, by the architecture that it names. It opens no weights."""

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
    """The family of a GGUF file; `BadInput` where it is damaged or of an architecture that no family here has."""
    return family_of_file(read_own_gguf(path))


def family_of_file(file: GgufFile) -> Family:
    """As `family_of_gguf`, of a file that has been read."""
    known = architectures()
    if file.architecture not in known:
        raise BadInput(f"{file.name} is of architecture {file.architecture!r:.80}; expected one of {', '.join(known)}")
    return known[file.architecture]


def architectures() -> Mapping[str, Family]:
    """Family by `general.architecture`: FunASR's names and ours for the speech models, llama.cpp's for language models,
    and those that other packages add."""
    return {name: family for family in FAMILIES.values() for name in family.gguf.architectures}


def has_other_half(file: GgufFile) -> bool:
    """Whether the language model shares its file with another network."""
    return HALF in file.metadata


def find_language_file(path: str | Path) -> Path:
    """The one GGUF file beside Fun-ASR-Nano's encoder that holds a Qwen language model; `BadInput` for none or several.

    Files that cannot be read as GGUF are passed over.
    """
    path = Path(path)
    found = [other for other in sorted(path.parent.glob("*.gguf")) if other != path and _is_language_half(other)]
    if not found:
        raise BadInput(
            f"{path.name} holds the hearing half of Fun-ASR-Nano alone; put the GGUF file of its language half, such "
            "as qwen3-0.6b-q8_0.gguf, into the same folder"
        )
    if len(found) > 1:
        names = ", ".join(other.name for other in found)
        raise BadInput(
            f"beside {path.name} are several language models ({names}); leave one of them in the folder, or give "
            f"{path.name} a folder of its own with the one that is meant"
        )
    return found[0]


def _is_language_half(path: Path) -> bool:
    if not is_gguf(path):
        return False
    try:
        return read_gguf(path).architecture in NANO_LANGUAGES
    except BadInput:
        return False
