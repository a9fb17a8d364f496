"""Converts checkpoint directories: the family's plan, carried out by the writer.

It runs in the caller's process and imports torch there; `workbench.artifacts` gives it a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.conversion import LAYOUTS
from workbench.conversion.plan import Plan, estimated_bytes
from workbench.core.errors import BadInput
from workbench.core.packages import CONVERSION, check_packages
from workbench.core.progress import OnProgress
from workbench.families import FAMILIES, load
from workbench.formats.quantization import resolve_quantization


def plans_of(directory: Path, family: str, layout: str = "workbench") -> list[Plan]:
    """Returns the plans of the files that a family's checkpoint becomes.

    Raises `BadInput` for an unknown family or layout and for a bad checkpoint, `Unavailable` if a package is missing.
    """
    converters = {name: each.gguf.converter for name, each in FAMILIES.items() if each.gguf.converter}
    if family not in converters:
        family_names = ", ".join(converters)
        raise BadInput(f"models of the family {family!r:.80} are not converted; expected one of {family_names}")
    if layout not in LAYOUTS:
        raise BadInput(f"layout is {layout!r:.80}; expected {' or '.join(LAYOUTS)}")
    check_packages("converting needs", CONVERSION)
    plans: list[Plan] = load(converters[family]).plans(directory.resolve(), layout)
    return plans


def convert(
    plans: Sequence[Plan], quantization: str, out: Path, on_progress: OnProgress | None = None
) -> tuple[list[Path], str]:
    """Writes the files of a model, and returns their paths and the type they got; `auto` chooses by size.

    Raises the errors of `writer.write`.
    """
    from workbench.conversion.writer import write

    resolved = resolve_quantization(quantization, estimated_bytes(plans))
    return write(plans, resolved, out, on_progress), resolved
