"""A model's weights as GGUF files: the one that it is, or those that are made of its checkpoint when they are wanted.

It reads no weights and computes nothing: `workbench.conversion` makes the files, and `workbench.artifacts` stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import BadInput
from workbench.core.progress import OnProgress
from workbench.core.settings import Settings
from workbench.formats.gguf_file import GgufFile, read_gguf, read_own_gguf
from workbench.registry.cards import Card
from workbench.registry.sources import local_checkpoint
from workbench.system.memory import size

if TYPE_CHECKING:
    from workbench.artifacts.gguf_files import QuantizationOffer as ConversionOffer

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
        return self.quantization + (f" {size(self.nbytes)}" if self.nbytes is not None else "")

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "name": self.quantization,
            "bytes": self.nbytes,
            "converted": self.converted,
            "default": self.default,
        }


def offered_weights(card: Card) -> tuple[Weights, ...]:
    """The quantisations of a model, as far as they are known without any work; the file's own for a GGUF file.

    Empty for a GGUF file that is missing or damaged.
    """
    checkpoint = local_checkpoint(card)
    if card.kind != "gguf":
        from workbench.artifacts.gguf_files import offered

        return _weights(offered(checkpoint, card.family))
    try:
        files = _with_language(card, read_gguf(checkpoint)) if checkpoint else []
        size_of_all = sum(file.nbytes for file in files)
        return (Weights(_quantization(files), size_of_all, True, True),) if files else ()
    except (BadInput, OSError):
        return ()


def why_not_converted(card: Card) -> str | None:
    """Why no GGUF file can be made of a model's checkpoint on this machine, and there is none yet; else None."""
    from workbench.artifacts.gguf_files import NEEDS

    missing = [name for name in NEEDS if find_spec(name) is None]
    if card.kind == "gguf" or not missing or any(each.converted for each in offered_weights(card)):
        return None
    return (
        f"its checkpoint must be converted first, which needs the Python packages {', '.join(NEEDS)}; "
        f"run: pip install {' '.join(missing)}"
    )


def measured_weights(card: Card, on_progress: OnProgress | None = None) -> tuple[Weights, ...]:
    """As `offered_weights`, with the sizes of all files where the checkpoint is here, which takes some seconds once.

    Raises what a conversion raises.
    """
    from workbench.artifacts.gguf_files import measured

    checkpoint = local_checkpoint(card)
    if card.kind == "gguf" or checkpoint is None:
        return offered_weights(card)
    return _weights(measured(checkpoint, card.family, on_progress))


def _weights(found: Iterable[ConversionOffer]) -> tuple[Weights, ...]:
    return tuple(Weights(each.name, each.nbytes, each.converted, each.default) for each in found)


def check_quantization(card: Card, quantization: str) -> None:
    """Raises `BadInput` for a quantisation that no checkpoint is converted to; a GGUF file may have any."""
    from workbench.formats.quantization import TYPES, check_type

    if card.kind != "gguf":
        check_type(quantization, (AUTO, *TYPES))


def gguf_file(
    card: Card, checkpoint: Path, settings: Settings, on_progress: OnProgress | None = None
) -> tuple[Path, Settings]:
    """The GGUF file of a checkpoint that is here, and the settings with its quantisation and its language half's file.

    A directory is converted first where needed. Raises `BadInput` for a quantisation that there is not, or that a GGUF
    file does not have, and what a conversion raises.
    """
    if card.kind != "gguf":
        from workbench.artifacts.gguf_files import converted

        path = converted(checkpoint, card.family, settings.quantization, on_progress)
        return path, replace(settings, quantization=read_gguf(path).quantization)
    from workbench.families.gguf_files import family_of_file, has_other_half

    file = read_own_gguf(checkpoint)
    family = family_of_file(file)
    language_half = card.family == "causal_lm" and has_other_half(file)
    if family.name != card.family and not language_half:
        raise BadInput(f"{card.id}: its card names the family {card.family}, and {checkpoint.name} holds {family.name}")
    files = _with_language(card, file)
    held = _quantization(files)
    if settings.quantization not in (AUTO, held):
        raise BadInput(
            f"quantization is {settings.quantization!r}, and the weights of {checkpoint.name} are {held} already; "
            f"expected auto or {held}"
        )
    return checkpoint, replace(settings, quantization=held, language_file=files[1].path if len(files) > 1 else None)


def _with_language(card: Card, file: GgufFile) -> list[GgufFile]:
    """The GGUF file of a card, and that of its language half where it is a file by itself.

    Raises `BadInput` for a language half that is missing, or that is not wanted.
    """
    from workbench.families.gguf_files import NANO_ENCODER, find_language_file

    named = card.source.get("language")
    if file.architecture == NANO_ENCODER:
        return [file, read_own_gguf(Path(named) if named else find_language_file(file.path))]
    if named:
        raise BadInput(f"{card.id}: its card names the language file {Path(named).name}, and {file.name} needs none")
    return [file]


def _quantization(files: Sequence[GgufFile]) -> str:
    """The type of the weights, or of those of both halves: `f16+q8_0`."""
    return "+".join(file.quantization for file in files)
