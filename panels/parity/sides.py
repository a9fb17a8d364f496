"""The sides of a comparison: those that the page offers, and those that a user wrote as text.

It asks the registry and shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from panels.running.choices import runtime_title, vad_choices
from workbench.core.errors import BadInput
from workbench.core.runtimes import RUNTIMES
from workbench.core.sides import DTYPES_BY_SHORT_NAME, GGUF_SUFFIX, Side, read_side, runtime_of
from workbench.families import FAMILIES
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.serving.admission.guard import Guard
from workbench.system.memory import size


@dataclass(frozen=True)
class Kind:
    """A runtime with a type of arithmetic or of weights."""

    side: str  # the side as text
    label: str  # name of the type
    size: str = ""  # size of the file, if known


@dataclass(frozen=True)
class SideChoice:
    """A runtime for a model: the types that it computes in, or why it cannot be chosen."""

    runtime: str
    kinds: tuple[Kind, ...]  # the first is the default
    reason: str = ""

    @property
    def title(self) -> str:
        return runtime_title(self.runtime)


def traceable(registry: Registry) -> list[Card]:
    """Returns the models whose stages can be traced."""
    return [
        card
        for card in registry.cards()
        if card.kind != "server"
        and card.family in FAMILIES
        and set(card.tasks) & {"transcribe", "generate", "converse"}
    ]


def find_card(registry: Registry, model: str) -> Card:
    """Returns the card of a model that can be compared; raises `BadInput` for others, as a public page opens no
    directory.
    """
    cards = traceable(registry)
    for card in cards:
        if card.id == model:
            return card
    raise BadInput(f"there is no model {model!r:.80} to compare; the models are {', '.join(each.id for each in cards)}")


def offered(registry: Registry, card: Card) -> tuple[SideChoice, ...]:
    """Returns every runtime with the types in which it can compute the model."""
    return tuple(_offered(registry, card, runtime) for runtime in RUNTIMES)


def _offered(registry: Registry, card: Card, runtime: str) -> SideChoice:
    state = registry.availability(card, runtime)
    if not state.ready and not state.fetches:
        return SideChoice(runtime, (), state.reason or "not available")
    if RUNTIMES[runtime].opens_gguf:
        weights = sorted(registry.weights(card, runtime), key=lambda each: not each.default)
        kinds = tuple(
            Kind(f"{runtime}:{each.quantization}", each.quantization, size(each.nbytes) if each.nbytes else "")
            for each in weights
        )
    else:
        types = [short for short, dtype in DTYPES_BY_SHORT_NAME.items() if dtype in RUNTIMES[runtime].dtypes]
        if not FAMILIES[card.family].has_language_model:
            # The other types are for language models only.
            types = [short for short in types if short in ("f32", "f64")]
        kinds = tuple(Kind(f"{runtime}:{short}", short) for short in types)
    return SideChoice(runtime, kinds, (state.reason or "") if state.fetches else "")


def usual_sides(registry: Registry, card: Card) -> tuple[str, str]:
    """Returns the first reference and candidate for a model; empty if there is none."""
    kinds_by_runtime = [each.kinds for each in offered(registry, card) if each.kinds]
    reference = kinds_by_runtime[0][0].side if kinds_by_runtime else ""
    other_types = [kinds[0].side for kinds in kinds_by_runtime[1:]] or [
        kind.side for kinds in kinds_by_runtime for kind in kinds[1:]
    ]
    return reference, next(iter(other_types), "")


def lines_of(text: str | None) -> list[str]:
    """Returns the lines of a text, such as sides, each once."""
    return list(dict.fromkeys(line.strip() for line in (text or "").splitlines() if line.strip()))


def is_gguf_file(name: str) -> bool:
    """Returns whether the name of an uploaded file is that of a GGUF file."""
    return name.lower().endswith(GGUF_SUFFIX)


def check_uploads(guard: Guard, paths: Sequence[str]) -> None:
    """Checks uploaded traces and GGUF files.

    Raises `BadInput` for an archive that unpacks into too much, and `Refused` for a GGUF file in public mode, where
    visitors run the owner's models only.
    """
    guard.check_arrays(paths)
    if any(map(is_gguf_file, paths)):
        guard.owners("running an uploaded GGUF file")


def uploads_by_name(paths: Iterable[str]) -> dict[str, str]:
    """Returns uploaded files by their names; the second of two files with one name gets a number."""
    path_by_name: dict[str, str] = {}
    for path in paths:
        name = unique = Path(path).name
        number = 2
        while unique in path_by_name:
            unique, number = f"{Path(name).stem} ({number}){Path(name).suffix}", number + 1
        path_by_name[unique] = path
    return path_by_name


def read_sides(
    registry: Registry, card: Card, texts: Sequence[str], uploads: Mapping[str, str], role: str
) -> tuple[Side, ...]:
    """Returns the sides that a user wrote. Raises `BadInput` for an invalid one.

    Args:
        uploads: uploaded traces and GGUF files by name; no other file is opened.
        role: the word for these sides in messages.
    """
    return tuple(_side(registry, card, text, uploads, role) for text in texts)


def _side(registry: Registry, card: Card, text: str, uploads: Mapping[str, str], role: str) -> Side:
    if text in uploads:
        path = Path(uploads[text])
        return Side(text, "gguf", file=path) if is_gguf_file(text) else Side(text, path=path)
    if runtime_of(text) is None:
        files = f"an uploaded file ({', '.join(uploads)})" if uploads else "an uploaded trace or GGUF file"
        raise BadInput(
            f"{role} {text!r:.80} is neither a runtime nor an uploaded file; expected {', '.join(RUNTIMES)}, a "
            f"type behind a colon as in gguf:q8_0, or the name of {files}"
        )
    side = read_side(text, registry.options_class(card.id), card.id)
    if side.options.get("vad", "none") not in vad_choices(registry):
        raise BadInput(f"vad in {text!r:.80} is not one of {', '.join(vad_choices(registry))}")
    return side
