"""A model's weights as GGUF files: the model's own file, or files that are made from its checkpoint on demand.

It reads no weights and computes nothing: `workbench.conversion` makes the files, and `workbench.artifacts` stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import BadInput
from workbench.core.packages import CONVERSION, missing_packages
from workbench.core.progress import OnProgress
from workbench.core.settings import Settings
from workbench.formats.gguf_file import GgufFile, read_gguf, read_own_gguf
from workbench.registry.cards import Card
from workbench.registry.sources import local_checkpoint
from workbench.system.memory import size

if TYPE_CHECKING:
    from workbench.artifacts.gguf_files import QuantizationOffer as ConversionOffer

AUTO = "auto"  # the quantisation that is used if none is requested


@dataclass(frozen=True)
class Weights:
    """A quantisation in which a model can be opened."""

    quantization: str
    nbytes: int | None  # size of the file; an estimate while there is no file; None if unknown
    converted: bool  # the file is there
    default: bool = False  # what `auto` means

    @property
    def label(self) -> str:
        """The quantisation with the size of its file, such as `q8_0 1.9 MB`."""
        return self.quantization + (f" {size(self.nbytes)}" if self.nbytes is not None else "")

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {
            "name": self.quantization,
            "bytes": self.nbytes,
            "converted": self.converted,
            "default": self.default,
        }


def offered_weights(card: Card) -> tuple[Weights, ...]:
    """Returns the quantisations of a model that are known without any work; for a GGUF file, its own.

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
    """Returns why a model has no GGUF file and none can be made on this machine; None if it has one or can get one."""
    missing = missing_packages(CONVERSION)
    if card.kind == "gguf" or not missing or any(each.converted for each in offered_weights(card)):
        return None
    return (
        f"its checkpoint must be converted first, which needs the Python packages {', '.join(CONVERSION)}; "
        f"run: pip install {' '.join(missing)}"
    )


def measured_weights(card: Card, on_progress: OnProgress | None = None) -> tuple[Weights, ...]:
    """As `offered_weights`, but with the sizes of all files if the checkpoint is here. The first call takes seconds.

    Raises what a conversion raises.
    """
    from workbench.artifacts.gguf_files import measured

    checkpoint = local_checkpoint(card)
    if card.kind == "gguf" or checkpoint is None:
        return offered_weights(card)
    return _weights(measured(checkpoint, card.family, on_progress))


def _weights(offers: Iterable[ConversionOffer]) -> tuple[Weights, ...]:
    return tuple(Weights(each.name, each.nbytes, each.converted, each.default) for each in offers)


def check_quantization(card: Card, quantization: str) -> None:
    """Raises `BadInput` for a quantisation that no checkpoint is converted to; a GGUF file may have any."""
    from workbench.formats.quantization import TYPES, check_type

    if card.kind != "gguf":
        check_type(quantization, (AUTO, *TYPES))


def gguf_file(
    card: Card, checkpoint: Path, settings: Settings, on_progress: OnProgress | None = None
) -> tuple[Path, Settings]:
    """Returns the GGUF file of a local checkpoint, and the settings with its quantisation and its language half's file.

    Converts a directory first if needed. Raises `BadInput` for a quantisation that does not exist or that a GGUF
    file does not have, and the errors of a conversion.
    """
    if card.kind != "gguf":
        from workbench.artifacts.gguf_files import converted

        path = converted(checkpoint, card.family, settings.quantization, on_progress)
        return path, replace(settings, quantization=read_gguf(path).quantization)
    from workbench.families.gguf_files import contains_language_model, family_of_file

    file = read_own_gguf(checkpoint)
    family = family_of_file(file)
    language_half = card.family == "causal_lm" and contains_language_model(file)
    if family.name != card.family and not language_half:
        raise BadInput(f"{card.id}: its card names the family {card.family}, but {checkpoint.name} holds {family.name}")
    files = _with_language(card, file)
    file_quantization = _quantization(files)
    if settings.quantization not in (AUTO, file_quantization):
        raise BadInput(
            f"quantization is {settings.quantization!r}, but the weights of {checkpoint.name} are {file_quantization}; "
            f"expected auto or {file_quantization}"
        )
    return checkpoint, replace(
        settings, quantization=file_quantization, language_file=files[1].path if len(files) > 1 else None
    )


def make_gguf_files(card: Card, quantizations: Sequence[str]) -> None:
    """Converts a checkpoint on this machine to several types at once, which is quicker than one after another.

    Does nothing for a GGUF file, nor for types whose files exist. Raises the errors of a conversion.
    """
    from workbench.artifacts.gguf_files import converted_files

    checkpoint = local_checkpoint(card)
    if card.kind != "gguf" and checkpoint is not None:
        converted_files(checkpoint, card.family, quantizations)


def _with_language(card: Card, file: GgufFile) -> list[GgufFile]:
    """Returns a card's GGUF file, and the file of its language half if that is separate.

    Raises `BadInput` for a language half that is missing or not needed.
    """
    from workbench.families.gguf_files import NANO_ENCODER, find_language_file

    language_path = card.source.get("language")
    if file.architecture == NANO_ENCODER:
        return [file, read_own_gguf(Path(language_path) if language_path else find_language_file(file.path))]
    if language_path:
        raise BadInput(
            f"{card.id}: its card names the language file {Path(language_path).name}, but {file.name} needs none"
        )
    return [file]


def _quantization(files: Sequence[GgufFile]) -> str:
    """Returns the type of the weights, or the types of both halves: `f16+q8_0`."""
    return "+".join(file.quantization for file in files)
