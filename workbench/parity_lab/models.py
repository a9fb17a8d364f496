"""The sides that compute the reference's own model with other numbers, on PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.compare.noise.report import FLOAT64
from workbench.compare.precision import HALVES
from workbench.core.sides import Side


def float64_side(reference: Side, file: Path | None = None) -> Side:
    """Returns the model in float64, with the weights of a GGUF file if one is given."""
    name = f"pytorch:{FLOAT64}" + (f"+weights={file.name}" if file else "")
    weights = {"weights": str(file)} if file else {}
    return Side(name, "pytorch", {**_shared_settings(reference), "dtype": FLOAT64, **weights}, dict(reference.options))


def kind_side(reference: Side, kind: str) -> Side:
    """Returns the whole model in float32 or a 16-bit type, with every step rounded and sums reordered."""
    steps = {"stepwise": True} if kind in HALVES else {}
    settings = {**_shared_settings(reference), "dtype": kind, **steps, "summation": 1}
    return Side(f"pytorch:{kind}{'+stepwise=on' if steps else ''}", "pytorch", settings, dict(reference.options))


def file_side(reference: Side, file: Path) -> Side:
    """Returns the model with the weights of a GGUF file and sums in other orders."""
    settings = {**_shared_settings(reference), "weights": str(file), "summation": 1}
    return Side(f"pytorch+weights={file.name}", "pytorch", settings, dict(reference.options))


def _shared_settings(reference: Side) -> dict[str, Any]:
    return {name: value for name, value in reference.settings.items() if name in ("threads", "device")}
