"""Says what the logits of a model in the registry mean. It reads the checkpoint's small files, but no weights."""

from __future__ import annotations

from workbench.core.errors import BadInput
from workbench.core.progress import OnProgress
from workbench.families import FAMILIES
from workbench.families.family import load
from workbench.families.vocabularies.ctc_layouts import LogitsLayout
from workbench.registry.cards import Card
from workbench.registry.sources import fetch

# Families by name, because the registry imports no runtime.
UNPACKED = "workbench.runtimes.gguf.files.unpacking:unpacked"


def logits_layout(card: Card, on_progress: OnProgress | None = None) -> LogitsLayout:
    """Returns the layout of the logits of a model's CTC head, for a checkpoint directory or a GGUF file.

    Raises `BadInput` for a model without a CTC head, and for a checkpoint that is missing or broken.
    """
    part = FAMILIES[card.family].ctc if card.family in FAMILIES else None
    if part is None:
        able = " or ".join(family.title for family in FAMILIES.values() if family.ctc)
        raise BadInput(f"{card.id} has no CTC head, so it has no logits for a beam search; expected {able}")
    place = fetch(card, on_progress)
    layout: LogitsLayout
    if place.is_file():
        from workbench.formats.gguf_file import read_gguf

        with load(UNPACKED)(read_gguf(place)) as directory:
            layout = load(part)(directory, place)
    else:
        layout = load(part)(place)
    return layout
