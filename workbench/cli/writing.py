"""Prints the text that a language model generates; reads the embeddings that a prompt may hold."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.cli.alternatives import alternatives_table
from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.embeddings import Embedding, SeveralTensors, read_embedding
from workbench.registry.handle import OpenSession
from workbench.session.values import Piece


def chosen_embeddings(parsed: argparse.Namespace) -> list[Embedding]:
    """Returns the embeddings in the files of --embedding. --tensor chooses among several tensors of a file."""
    found: dict[int, Embedding] = {}
    several: dict[int, SeveralTensors] = {}
    for number, path in enumerate(parsed.embedding):
        try:
            found[number] = read_embedding(path)
        except SeveralTensors as error:
            several[number] = error
    names = parsed.tensor * len(several) if len(parsed.tensor) == 1 else parsed.tensor
    if several and not names:
        first = next(iter(several.values()))
        raise BadInput(f"{first}; see --tensor") from first
    if len(parsed.tensor) == 1 and not several:
        return [read_embedding(path, tensor=parsed.tensor[0]) for path in parsed.embedding]
    if len(names) != len(several):
        raise BadInput(
            f"--tensor is given {len(parsed.tensor)} times, and --embedding {counted(len(several), 'file')} with "
            "several tensors; expected one name for all of these files, or one for each"
        )
    for number, name in zip(several, names, strict=True):
        found[number] = read_embedding(parsed.embedding[number], tensor=name)
    return [found[number] for number in range(len(parsed.embedding))]


def print_text(
    session: OpenSession,
    prompt: str,
    embeddings: Sequence[Embedding],
    options: Mapping[str, Any],
    as_json: bool,
    say: Callable[[str], None],
) -> None:
    """Prints the text that a language model generates after a prompt, token by token; passes notes to `say`."""
    if as_json:
        generation = session.generate(prompt, embeddings=embeddings, **options)
        print(generation.to_json())
        for note in generation.notes:
            say(f"{generation.model}: {note}")
        return
    with contextlib.closing(session.generate_stream(prompt, embeddings=embeddings, **options)) as pieces:
        for piece in pieces:
            if isinstance(piece, Piece):
                print(piece.text, end="", flush=True)
            else:
                print(flush=True)
                for line in (*alternatives_table(piece), *(f"{piece.model}: {note}" for note in piece.notes)):
                    say(line)
                if piece.finish == "length":
                    say(f"{piece.model}: cut off after {len(piece.tokens)} tokens; see --max-new-tokens")
