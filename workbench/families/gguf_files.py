"""Which family a GGUF file holds, by the architecture that it names. It opens no weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.families import FAMILIES, Family
from workbench.families.language import MODEL_TYPES
from workbench.formats.gguf_file import GgufFile, read_own_gguf

NANO_EAR = "funasr-sensevoice-encoder"  # Fun-ASR-Nano without its language half, which is a file of its own

ARCHITECTURES: Mapping[str, str] = {
    "sensevoice-small": "sensevoice",
    "paraformer": "paraformer",
    NANO_EAR: "funasr_nano",
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
