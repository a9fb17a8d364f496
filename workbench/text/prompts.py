"""Tells the name of a recording from a prompt: a language model would go on from the letters of the name.

A text is judged by how it reads. Only `check_typed` looks for a file, since a prompt may come from another machine,
which has no business with the files of this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput

SUFFIXES = (
    *(".wav", ".wave", ".w64", ".rf64", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".m4a", ".m4b", ".aac", ".wma"),
    *(".aif", ".aiff", ".aifc", ".caf", ".au", ".snd", ".sph", ".amr", ".webm", ".mp4", ".mov", ".mkv", ".avi"),
)
"""Of recordings, and of the videos that hold one."""

_HEAD = 12  # bytes at the beginning of a file, by which its format is known
_BEGINNINGS = (b"RIFF", b"RF64", b"riff", b"fLaC", b"OggS", b"ID3", b"FORM", b"caff", b".snd", b"\x1a\x45\xdf\xa3")
_FRAMES = (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xf1", b"\xff\xf9")  # of MPEG audio and of AAC


def check_prompt(prompt: Any, model: str) -> None:
    """Raises `BadInput` where a prompt, or what stands in place of one, names a recording: a `Path`, or one word that
    ends like the name of an audio file."""
    if isinstance(prompt, Path) or (isinstance(prompt, str) and _reads_like_one(prompt)):
        raise _refused(str(prompt), model)


def check_typed(prompt: str, model: str) -> None:
    """As `check_prompt`, for what was typed on this machine: also where a recording of that name is there."""
    check_prompt(prompt, model)
    if _is_recording(prompt):
        raise _refused(prompt, model)


def _reads_like_one(text: str) -> bool:
    words = text.split()
    return len(words) == 1 and _suffix(words[0]) in SUFFIXES


def _is_recording(text: str) -> bool:
    """Whether a file of that name is there that is called like a recording, or begins like one."""
    try:
        path = Path(text).expanduser()
        if not path.is_file():
            return False
        if _suffix(text) in SUFFIXES:
            return True
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except (OSError, RuntimeError, ValueError):  # longer than a path may be, of a user who is not there, with a null
        return False
    return head.startswith(_BEGINNINGS + _FRAMES) or head[4:8] == b"ftyp"


def _suffix(text: str) -> str:
    """What stands from the last full stop on: of a text of any length, which a path has not."""
    return ("." + text.rpartition(".")[2]).strip().lower() if "." in text else ""


def _refused(text: str, model: str) -> BadInput:
    return BadInput(
        f"{text!r:.120} is the name of a recording, and {model} goes on from a text; expected the text itself, such as "
        "'Count from two to six.', or - to read it from standard input"
    )
