"""Finds the inputs of a run over several: files, texts, a folder, or a list in a file. It reads no recording.

A list is a text file with an input on each line, or JSONL with objects such as `{"audio": "talk.wav"}` or
`{"text": "Count to three.", "name": "count"}`. Paths are relative to the list's folder. Dumps of a port lie in one
folder or file per input, with the input's name: `dumps/talk/`, `dumps/talk.npz`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.sides import Side
from workbench.formats.text_files import lines_of, read_text
from workbench.text.prompts import SUFFIXES
from workbench.text.scripts import clipped

LISTS = (".txt", ".jsonl")
TRACES = ("", ".safetensors", ".npz", ".zip")  # what a dump's name may end in; a folder has no suffix
MAX_INPUTS = 10_000
MAX_LIST_BYTES = 64 << 20


@dataclass(frozen=True)
class Input:
    """One input of a run, with the name that its dumps have."""

    name: str
    source: Any  # a path or a text


def is_several(arguments: Sequence[str], reads_text: bool) -> bool:
    """Returns whether the arguments are several inputs: more than one, a folder, or a list."""
    if len(arguments) > 1 or any(map(_is_list, arguments)):
        return True
    return not reads_text and any(map(os.path.isdir, arguments))  # for a name that is too long, Path.is_dir raises


def read_inputs(arguments: Sequence[str], reads_text: bool) -> list[Input]:
    """Returns the inputs, each once and with a name of its own.

    Args:
        arguments: recordings, or texts for a model that reads text; folders of recordings; lists.
        reads_text: whether the model reads a text.

    Raises `BadInput` if there is none, if a list cannot be read, or if two have the same name.
    """
    inputs = [item for each in arguments for item in _inputs_of(each, reads_text)]
    if not inputs:
        raise BadInput(f"there is no input in {', '.join(map(str, arguments))}; expected recordings or texts")
    if len(inputs) > MAX_INPUTS:
        raise BadInput(f"there are {len(inputs)} inputs; expected at most {MAX_INPUTS}")
    if reads_text:  # texts without a name are counted
        inputs = [each if each.name else replace(each, name=f"text-{n}") for n, each in enumerate(inputs, 1)]
    names = [each.name for each in inputs]
    duplicate = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if duplicate is not None:
        raise BadInput(
            f"two inputs have the name {duplicate!r:.80}; expected names that differ, as dumps are found by them"
        )
    return inputs


def with_dump(side: Side, name: str) -> Side:
    """Returns a side for one input: from a folder of dumps, the dump with the input's name; other sides unchanged.

    Raises `BadInput` if the folder has no such dump.
    """
    if side.path is None:
        return side
    dump = next((path for suffix in TRACES if (path := side.path / f"{name}{suffix}").exists()), None)
    if dump is None:
        raise BadInput(f"{side.path} has no dump of the input {name}; expected a folder or file {name} for each input")
    return replace(side, path=dump)


def _inputs_of(argument: str, reads_text: bool) -> Iterator[Input]:
    path = Path(argument) if len(argument) < 4096 and "\0" not in argument else None
    if _is_list(argument):
        assert path is not None
        yield from _listed(path, reads_text)
    elif reads_text:
        yield Input("", argument)
    elif path is not None and path.is_dir():
        inside = sorted(each for each in path.iterdir() if each.suffix.lower() in SUFFIXES)
        yield from (Input(each.stem, str(each)) for each in inside)
    else:
        yield Input(Path(argument).stem, argument)


def _is_list(argument: str) -> bool:
    if not argument.lower().endswith(LISTS) or len(argument) > 4096 or "\n" in argument:
        return False
    return Path(argument).is_file()


def _listed(path: Path, reads_text: bool) -> Iterator[Input]:
    try:
        lines = lines_of(read_text(path, MAX_LIST_BYTES))
    except BadInput as error:
        raise BadInput(f"{path.name} cannot be read: {error}; expected a list of inputs in UTF-8") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"line {number} of {path.name}"
        source, name = _entry(line, place, reads_text) if path.suffix.lower() == ".jsonl" else (line.strip(), "")
        if reads_text:
            yield Input(name, source)
        else:
            yield Input(name or Path(source).stem, str(path.parent / source))


def _entry(line: str, place: str, reads_text: bool) -> tuple[str, str]:
    """Returns the source and the name of a line of JSONL."""
    key = "text" if reads_text else "audio"
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f'{place} is not JSON ({clipped(line, 60)}); expected an object such as {{"{key}": "..."}}'
        ) from error
    source = entry.get(key) if isinstance(entry, dict) else None
    name = entry.get("name", "") if isinstance(entry, dict) else ""
    if not isinstance(source, str) or not source or not isinstance(name, str):
        raise BadInput(
            f'{place} names no input; expected an object such as {{"{key}": "..."}}, with a name if it has one'
        )
    return source, name
