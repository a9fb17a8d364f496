"""Writes a picture as PNG, as SVG with text as text, or as NPZ with its numbers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.packages import PICTURES, check_packages
from workbench.system.atomic_files import check_place, write_whole
from workbench.visualise.picture import Axis, Layer, Picture


def kind_of(path: str | Path) -> str:
    """Returns the kind of file that a path names: png, svg or npz.

    Raises `BadInput` for another ending and for a place where no file can be made, `Unavailable` without matplotlib.
    """
    place = Path(path).expanduser()
    kind = place.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        endings = ", ".join(f".{each}" for each in KINDS)
        raise BadInput(
            f"{(place.name or str(place))!r:.80} is not the name of a picture; expected one that ends in {endings}"
        )
    check_place(place)
    check_drawable(kind)
    return kind


def check_drawable(kind: str) -> None:
    """Raises `Unavailable` if matplotlib, which a file of that kind needs, is not installed."""
    if kind != "npz":
        check_packages("pictures need", PICTURES)


def write(picture: Picture, path: str | Path) -> Path:
    """Writes a picture to a file of the kind that the path names; an existing file is replaced."""
    place, kind = Path(path).expanduser(), kind_of(path)
    write_whole(place, render(picture, kind))
    return place


def render(picture: Picture, kind: str = "png") -> bytes:
    """Returns the bytes of a file of a kind: png, svg or npz. Raises as `kind_of` does."""
    if kind not in KINDS:
        raise BadInput(f"a picture cannot be written as {kind!r:.40}; expected one of {', '.join(KINDS)}")
    check_drawable(kind)
    return KINDS[kind](picture)


def figure_of(picture: Picture) -> Any:
    """Returns the picture as a matplotlib Figure."""
    from workbench.plots.stacked import layers_figure

    return layers_figure(picture.layers, picture.seconds, f"{picture.title}: {picture.side}")


def _png(picture: Picture) -> bytes:
    content = io.BytesIO()
    figure_of(picture).savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def _svg(picture: Picture) -> bytes:
    """Returns an SVG with text as text and arrays as images inside; equal pictures give equal bytes."""
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "workbench"}):
        figure_of(picture).savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return content.getvalue()


def _npz(picture: Picture) -> bytes:
    """Returns the arrays by the names of their layers, the places along their axes, and `metadata` as JSON."""
    arrays: dict[str, np.ndarray] = {}
    for layer in picture.layers:
        arrays[layer.name] = layer.values
        if layer.cells:
            arrays[f"{layer.name}.x"] = _places(layer.x, layer.cells)
        if layer.kind in ("image", "table"):
            arrays[f"{layer.name}.y"] = _places(layer.y, layer.values.shape[-2])
        if layer.labels:
            arrays[f"{layer.name}.labels"] = np.array(layer.labels)
    described = {
        "view": picture.view,
        "model": picture.model,
        "runtime": picture.runtime,
        "quantization": picture.quantization,
        "changes": list(picture.changes),
        "title": picture.title,
        "sentence": picture.sentence,
        "seconds": picture.seconds,
        "tokens": [asdict(token) for token in picture.tokens],
        "notes": list(picture.notes),
        "code": picture.code,
        "layers": {layer.name: _described(layer) for layer in picture.layers},
    }
    arrays["metadata"] = np.array(json.dumps(described, ensure_ascii=False))
    content = io.BytesIO()
    keywords: Any = arrays  # a layer may have the name of an argument
    np.savez_compressed(content, **keywords)
    return content.getvalue()


def _places(axis: Axis, cells: int) -> np.ndarray:
    places: np.ndarray = axis.start + np.arange(cells) * axis.step
    return places


def _described(layer: Layer) -> dict[str, Any]:
    return {
        "kind": layer.kind,
        "title": layer.title,
        "x": asdict(layer.x),
        "y": asdict(layer.y),
        "scale": asdict(layer.scale) if layer.scale else None,
    }


KINDS: Mapping[str, Callable[[Picture], bytes]] = {"png": _png, "svg": _svg, "npz": _npz}
"""The kinds of files, by the ending of their names."""
