"""Families from other packages, found by the entry point group `speech_workbench.families`.

An entry point names a `Family`, or a function without arguments that returns one. Each family is checked when it is
read, as far as that can be done without a model: a family with a fault is refused with a sentence, and all others work.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import is_dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from workbench.core.errors import message_of, named_message_of
from workbench.core.options import option_specs
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SETTINGS
from workbench.families.family import Cell, Family, load

GROUP = "speech_workbench.families"
NAME = re.compile(r"[a-z][a-z0-9_]*")
RESERVED = (
    *(
        "audio",
        "audios",
        "blank",
        "count",
        "embeddings",
        "given",
        "logits",
        "messages",
        "options",
        "out",
        "prompt",
        "self",
        "source",
        "stages",
        "system",
        "tokens",
        "text",
        "values",
    ),
    *("against", "baseline", "junit", "list", "narrow", "summary", "view", "worse_by"),
    *("candidates", "embedding", "float64", "follow", "force", "format", "help", "inputs", "isolated", "json", "keep"),
    *(
        "mapping",
        "model",
        "precision",
        "preset",
        "reference",
        "report",
        "runtime",
        "same_precision",
        "steps",
        "tensor",
        "tolerance",
    ),
    *("channels", "live", "pcm", "rate"),
    *("address", "batch_size", "limit", "manifest", "normaliser", "retry_failed", "server", "split", "text_column"),
    *("transcripts", "workers"),
)
"""Names that no option can have: calls of sessions have parameters, and commands have flags, of these names. The
settings of sessions (`workbench.core.settings.SETTINGS`) are reserved too."""


def read_outside(built_in: Iterable[Family]) -> tuple[tuple[Family, ...], tuple[str, ...]]:
    """The usable families of other packages, and a sentence for each entry point that has none.

    Args:
        built_in: the families of this project, whose names and GGUF architectures are taken.
    """
    families = {family.name: family for family in built_in}
    external_families: dict[str, Family] = {}
    refused = []
    for point in sorted(entry_points(group=GROUP), key=lambda each: (_package(each), each.name)):
        try:
            family = _loaded(point)
            _check(family, {**families, **external_families})
            external_families[family.name] = family
        except (Exception, SystemExit) as error:  # another package's code may raise anything
            reason = message_of(error, None) if isinstance(error, _Fault) else named_message_of(error)
            refused.append(f"the family {point.name!r} of the package {_package(point)} cannot be used: {reason}")
    return tuple(external_families.values()), tuple(refused)


class _Fault(Exception):
    """The fault of a family, as the end of a sentence."""


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _loaded(point: EntryPoint) -> Family:
    value = point.load()
    family = value() if callable(value) and not isinstance(value, Family) else value
    if not isinstance(family, Family):
        raise _Fault(
            f"{point.value} is of type {type(family).__name__}; expected a workbench.families.Family, or a function "
            "that returns one"
        )
    return replace(family, package=_package(point))


def _check(family: Family, other_families: Mapping[str, Family]) -> None:
    """Raises an error if the family cannot be used beside the others."""
    if not isinstance(family.name, str) or not NAME.fullmatch(family.name):
        raise _Fault(f"its name is {family.name!r:.80}; expected lower-case letters, digits and underscores")
    if family.name in other_families:
        package = other_families[family.name].package
        reason = f"the package {package} has it" if package else "the workbench has a family of that name"
        raise _Fault(f"the name {family.name!r} is taken: {reason}")
    for architecture in family.gguf.architectures:
        if owner := next((each for each in other_families.values() if architecture in each.gguf.architectures), None):
            raise _Fault(f"its GGUF architecture {architecture!r} is taken: files of {owner.title} have it")
    _check_cells(family)
    if not callable(load(f"{family.module}:{family.recognise}")):
        raise _Fault(f"{family.module}:{family.recognise} is not a function")
    _check_options(family, other_families.values())


def _check_cells(family: Family) -> None:
    for runtime, cell in family.cells.items():
        if runtime not in RUNTIMES:
            raise _Fault(f"it has a cell for {runtime!r:.80}; expected one of {', '.join(RUNTIMES)}")
        if not isinstance(cell, Cell) or not (cell.module or cell.reason):
            raise _Fault(f"its cell for {runtime} is {cell!r:.80}; expected a Cell with a module or a reason")
    if not any(cell.module for cell in family.cells.values()):
        raise _Fault("none of its cells has a module, so that it runs nowhere")


def _check_options(family: Family, other_families: Collection[Family]) -> None:
    options_class: Any = family.options_class
    if not isinstance(options_class, type) or not is_dataclass(options_class):
        raise _Fault(f"its options {family.module}:{family.options} are not a dataclass")
    options_class()  # each option needs a default
    kinds = {spec.name: (spec.kind, each) for each in other_families for spec in option_specs(each.options_class)}
    for spec in option_specs(options_class):
        if spec.name in RESERVED or spec.name in SETTINGS:
            raise _Fault(f"its option {spec.name!r} has the name of a flag or parameter that every model has")
        if not NAME.fullmatch(spec.name) or spec.name.startswith("no_"):
            raise _Fault(
                f"its option {spec.name!r} makes no flag; expected lower-case letters, digits and underscores, and no "
                "no_ in front"
            )
        kind, owner = kinds.get(spec.name, (spec.kind, family))
        if kind is not spec.kind:
            raise _Fault(
                f"its option {spec.name!r} is of type {spec.kind.__name__}, and that of {owner.title} is of type "
                f"{kind.__name__}; expected the same type or another name"
            )
