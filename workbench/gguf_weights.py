"""A model's weights as GGUF files: the one that it is, or those that are made of its checkpoint when they are wanted.

It reads no weights and computes nothing: `workbench.conversion` makes the files, and keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.cards import Card
from workbench.errors import BadInput
from workbench.sources import OnProgress, local_checkpoint

AUTO = "auto"  # the quantisation that is taken where none is asked for


@dataclass(frozen=True)
class Weights:
    """A quantisation in which a model can be opened."""

    quantization: str
    nbytes: int | None  # of the file; about, while there is none; None where nothing is known yet
    converted: bool  # the file is there
    default: bool = False  # what `auto` means

    @property
    def label(self) -> str:
        """The quantisation with the size of its file, such as `q8_0 1.9 MB`."""
        return self.quantization + (f" {megabytes(self.nbytes)}" if self.nbytes is not None else "")


def megabytes(count: int) -> str:
    """The size of a file: `1.3 GB`, `412 MB`, `3.6 MB`."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 9.95e6 else f"{count / 1e6:.1f} MB"


def offered_weights(card: Card) -> tuple[Weights, ...]:
    """The quantisations of a model, as far as they are known without any work; the file's own for a GGUF file.

    Empty for a GGUF file that is missing or damaged.
    """
    from workbench.conversion.cache import offered
    from workbench.gguf_file import read_gguf

    checkpoint = local_checkpoint(card)
    if card.kind != "gguf":
        return tuple(Weights(each.name, each.nbytes, each.converted, each.default) for each in offered(checkpoint))
    if checkpoint is None:
        return ()
    try:
        return (Weights(read_gguf(checkpoint).quantization, checkpoint.stat().st_size, True, True),)
    except (BadInput, OSError):
        return ()


def gguf_file(card: Card, checkpoint: Path, quantization: str, on_progress: OnProgress | None) -> tuple[Path, str]:
    """The GGUF file of a checkpoint that is here, and its quantisation; a directory is converted first where needed.

    Raises `BadInput` for a quantisation that there is not, or that a GGUF file does not have, and what a conversion
    raises.
    """
    from workbench.conversion.cache import converted
    from workbench.families.gguf_files import family_of_gguf
    from workbench.gguf_file import read_gguf

    if card.kind != "gguf":
        path = converted(checkpoint, card.family, quantization, on_progress)
        return path, read_gguf(path).quantization
    held = read_gguf(checkpoint).quantization
    if quantization not in (AUTO, held):
        raise BadInput(
            f"quantization is {quantization!r}, and the weights of {checkpoint.name} are {held} already; "
            f"expected auto or {held}"
        )
    family = family_of_gguf(checkpoint)
    if family.name != card.family:
        raise BadInput(f"{card.id}: its card names the family {card.family}, and {checkpoint.name} holds {family.name}")
    return checkpoint, held
