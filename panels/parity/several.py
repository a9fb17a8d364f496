"""Several inputs of one comparison: what the page and scripts upload, and what cannot be combined with them.

It reads no recording and shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.families import FAMILIES
from workbench.families.family import Family
from workbench.parity_lab import Input, read_inputs
from workbench.registry.cards import Card
from workbench.session.values import CONVERSATION

RECORDINGS = "Recordings"
PROMPTS = "Prompts: .txt with one per line, or .jsonl"


def inputs_of(several: Sequence[str], family: Family) -> list[Input]:
    """Returns several recordings or prompts as inputs of a run, with names that differ.

    A prompt is a text here, even if a file of this machine has such a name.
    """
    if family.reads_text:
        return [Input(f"text-{number}", each) for number, each in enumerate(several, 1)]
    return [Input(f"{Path(each).stem}-{number}", each) for number, each in enumerate(several, 1)]


def uploaded_inputs(paths: Sequence[str], family: Family) -> list[Input]:
    """Returns the inputs in uploaded files: recordings, or lists of prompts for a model that reads text.

    A list is a .txt file with one prompt on each line, or a .jsonl file. It cannot name recordings, because a public
    page opens only uploaded files. Raises `BadInput` for other files.
    """
    lists = [path for path in paths if path.lower().endswith((".txt", ".jsonl"))]
    if family.reads_text:
        if len(lists) < len(paths):
            raise BadInput("a file of several prompts is a .txt with one prompt per line, or a .jsonl")
        return read_inputs(paths, True) if paths else []
    if lists:
        raise BadInput(f"{Path(lists[0]).name} is a list; upload the recordings themselves")
    return inputs_of(paths, family)


def check_several(card: Card, traces: bool, embeddings: bool) -> None:
    """Raises `BadInput` for what several inputs cannot be combined with.

    Args:
        traces: whether a side is an uploaded trace.
        embeddings: whether there are embeddings for a prompt.
    """
    if FAMILIES[card.family].input == CONVERSATION:
        raise BadInput(f"{card.id} answers conversations; expected one recording or prompt")
    if traces:
        raise BadInput("a trace file belongs to one input; remove the several inputs, or compare runtimes only")
    if embeddings:
        raise BadInput("embeddings belong to one prompt; remove them, or the several inputs")
