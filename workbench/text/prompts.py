"""Refuses a prompt that is the name of a recording: a language model would continue the letters of the name. A model
that takes audio gets the recording instead, as a spoken message.

The check looks at the text alone. Only `check_typed` looks for a file, because a prompt may come from another machine,
which must learn nothing about the files of this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.audio.in_memory import is_in_memory
from workbench.core.errors import BadInput

SUFFIXES = (
    *(".wav", ".wave", ".w64", ".rf64", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".m4a", ".m4b", ".aac", ".wma"),
    *(".aif", ".aiff", ".aifc", ".caf", ".au", ".snd", ".sph", ".amr", ".webm", ".mp4", ".mov", ".mkv", ".avi"),
)
"""File name extensions of recordings, and of videos that hold one."""

_HEAD = 12  # bytes at the beginning of a file that identify its format
_BEGINNINGS = (b"RIFF", b"RF64", b"riff", b"fLaC", b"OggS", b"ID3", b"FORM", b"caff", b".snd", b"\x1a\x45\xdf\xa3")
_FRAMES = (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xf1", b"\xff\xf9")  # first bytes of MPEG audio and AAC


def check_prompt(prompt: Any, model: str) -> None:
    """Raises `BadInput` if a prompt names a recording: a `Path`, or one word that ends like an audio file's name."""
    if isinstance(prompt, Path) or (isinstance(prompt, str) and _reads_like_one(prompt)):
        raise _refused(str(prompt), model)


def check_typed(prompt: str, model: str) -> None:
    """Raises `BadInput` as `check_prompt` does, and also if a recording of that name exists on this machine."""
    check_prompt(prompt, model)
    if _is_recording(prompt):
        raise _refused(prompt, model)


def messages_of(source: Any, typed: bool = False) -> Any:
    """Returns a source as a conversation for a model that takes audio: a recording becomes a message of the user.

    Args:
        source: a `Path`, a text that is the name of a recording (`check_prompt`), or a recording in memory; any other
            text, and messages, are returned as they are.
        typed: a text was typed on this machine, so a file of that name counts too (`check_typed`).
    """
    is_recording_name = isinstance(source, str) and (_reads_like_one(source) or (typed and _is_recording(source)))
    if not (is_recording_name or isinstance(source, Path) or is_in_memory(source)):
        return source
    is_file = is_recording_name or isinstance(source, Path)
    audio = str(Path(source).expanduser().absolute()) if is_file else source
    return [{"role": "user", "content": [{"type": "audio", "audio": audio}]}]


def _reads_like_one(text: str) -> bool:
    words = text.split()
    return len(words) == 1 and _suffix(words[0]) in SUFFIXES


def _is_recording(text: str) -> bool:
    """Returns whether a file of that name exists and is a recording by its name or its first bytes."""
    try:
        path = Path(text).expanduser()
        if not path.is_file():
            return False
        if _suffix(text) in SUFFIXES:
            return True
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except (OSError, RuntimeError, ValueError):  # too long for a path, an unknown user, or a null character
        return False
    return head.startswith(_BEGINNINGS + _FRAMES) or head[4:8] == b"ftyp"


def _suffix(text: str) -> str:
    """Returns the text from the last full stop on. Unlike a path's suffix, it works for a text of any length."""
    return ("." + text.rpartition(".")[2]).strip().lower() if "." in text else ""


def _refused(text: str, model: str) -> BadInput:
    return BadInput(
        f"{text!r:.120} is the name of a recording, and {model} continues a text; expected the text itself, such as "
        "'Count from two to six.', or - to read it from standard input"
    )
