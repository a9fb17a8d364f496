"""Which family a GGUF file holds, by the architecture that it names. It opens no weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.families import FAMILIES, Family
from workbench.families.language import MODEL_TYPES
from workbench.formats.gguf_file import GgufFile, is_gguf, read_gguf, read_own_gguf

HALF = "workbench.language.architecture"
FORMAT_VERSION = 1  # of our own files
NANO_LANGUAGES = ("qwen3", "qwen2")
NANO_ENCODER = "funasr-sensevoice-encoder"  # Fun-ASR-Nano without its language half, which is a file of its own

ARCHITECTURES: Mapping[str, str] = {
    "sensevoice-small": "sensevoice",
    "paraformer": "paraformer",
    NANO_ENCODER: "funasr_nano",
    "funasr-nano": "funasr_nano",
    "fireredasr-llm": "fireredasr",
    "fsmn-vad": "fsmn_vad",
    **dict.fromkeys(MODEL_TYPES, "causal_lm"),
}
"""Family by `general.architecture`: FunASR's names and ours for the speech models, llama.cpp's for language models."""


def family_of_gguf(path: str | Path) -> Family:
    """The family of a GGUF file; `BadInput` where it is damaged or of an architecture that no family here has."""
    return family_of_file(read_own_gguf(path))


def family_of_file(file: GgufFile) -> Family:
    """As `family_of_gguf`, of a file that has been read."""
    name = ARCHITECTURES.get(file.architecture)
    if name is None:
        known = ", ".join(ARCHITECTURES)
        raise BadInput(f"{file.name} is of architecture {file.architecture!r:.80}; expected one of {known}")
    return FAMILIES[name]


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
