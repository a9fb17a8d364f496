"""Names the input of a run in a few words: a file name, or the beginning of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.text.scripts import clipped


def source_name(source: Any, reads_text: bool) -> str:
    """Returns a recording's file name, or the beginning of a prompt; the model decides which of them a text is."""
    if isinstance(source, (str, Path)) and not reads_text:
        return Path(source).name
    if isinstance(source, str):
        return clipped(source, 100)
    if isinstance(source, Sequence) and source and isinstance(source[-1], Mapping):
        return clipped(_last_words(source[-1].get("content", "")), 100)
    return "samples"


def _last_words(content: Any) -> str:
    """Returns the content of a message as text: its texts, and the file names of its recordings."""
    if isinstance(content, str) or not isinstance(content, Sequence):
        return str(content)
    return ", ".join(_part(part) for part in content if isinstance(part, Mapping))


def _part(part: Mapping[str, Any]) -> str:
    if "text" in part:
        return str(part["text"])
    audio = part.get("audio")
    return Path(audio).name if isinstance(audio, (str, Path)) else "a recording"
