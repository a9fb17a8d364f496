"""Two pictures of one view: side by side on one time axis with the same colours, and their difference.

Works on pictures of any two models, runtimes or types of weights. This file opens no model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.phrases import dimensions
from workbench.plots.layers import FLAT, Layer, Scale, diverging_scale
from workbench.visualise.picture import Picture

COMPARED = ("image", "lines", "bars", "table")
"""Kinds of layers that have a difference, cell by cell."""


def check_alike(one: Picture, other: Picture) -> None:
    """Raises `BadInput` for pictures of two different views."""
    if one.view != other.view:
        raise BadInput(f"pictures of {one.view} and of {other.view} are given; expected two of one view")


def difference(one: Picture, other: Picture) -> Picture:
    """Returns `other` minus `one`, layer by layer, with colours that are white at 0.

    Layers of other shapes are left out, and a note names them. Raises `BadInput` for pictures of two views, and where
    no layer can be compared.
    """
    check_alike(one, other)
    theirs = {layer.name: layer for layer in other.layers}
    layers, left = [], []
    for layer in one.layers:
        found = theirs.get(layer.name)
        if layer.kind not in COMPARED or layer.over:
            continue
        if found is None or found.values.shape != layer.values.shape:
            left.append(_why(layer, found))
            continue
        values = found.values.astype(np.float64) - layer.values.astype(np.float64)
        coloured = layer.kind in ("image", "table")
        labels = tuple(f"{value:+.2g}" for value in values.flat) if layer.kind == "table" else layer.labels
        scale = diverging_scale("difference", values) if coloured else None
        layers.append(replace(layer, title=f"{layer.title}: difference", values=values, labels=labels, scale=scale))
    if not layers:
        why = left[0] if left else "this view has no arrays"
        raise BadInput(f"{one.side} and {other.side} have no difference that can be drawn: {why}")
    return Picture(
        view=one.view,
        model=one.model,
        runtime=one.runtime,
        title=f"{one.title}: {other.side} minus {one.side}",
        sentence=one.sentence,
        layers=tuple(layers),
        seconds=one.seconds,
        tokens=one.tokens,
        notes=tuple(left),
        quantization=one.quantization,
    )


def _why(layer: Layer, other: Layer | None) -> str:
    if other is None:
        return f"only the first has {layer.title}"
    shapes = [dimensions(each.values.shape) for each in (layer, other)]
    return f"{layer.title} is {shapes[0]} values in the first and {shapes[1]} in the second"


def side_by_side(one: Picture, other: Picture) -> Picture:
    """Returns one picture with the layers of both and of their difference, where there is one.

    Layers of one name share the scale of their colours. Raises `BadInput` for pictures of two views.
    """
    check_alike(one, other)
    shared = _shared_scales(one, other)
    layers = [*_named(one, "a", shared), *_named(other, "b", shared)]
    notes = [*one.notes, *(note for note in other.notes if note not in one.notes)]
    try:
        found = difference(one, other)
        layers += [replace(layer, name=f"difference_{layer.name}") for layer in found.layers]
        notes += found.notes
    except BadInput as error:
        notes.append(str(error))
    return replace(
        one,
        title=f"{one.title}: {one.side} and {other.side}",
        layers=tuple(layers),
        notes=tuple(notes),
        seconds=max(filter(None, (one.seconds, other.seconds)), default=None),
    )


def _named(picture: Picture, prefix: str, scales: dict[str, Scale]) -> list[Layer]:
    return [
        replace(
            layer,
            name=f"{prefix}_{layer.name}",
            title=layer.title if layer.over else f"{picture.side}: {layer.title}",
            scale=scales.get(layer.name, layer.scale),
        )
        for layer in picture.layers
    ]


def _shared_scales(one: Picture, other: Picture) -> dict[str, Scale]:
    """Returns one scale for the layers of both pictures that have the same name."""
    theirs = {layer.name: layer.scale for layer in other.layers}
    found = {}
    for layer in one.layers:
        scale = theirs.get(layer.name)
        if layer.kind not in FLAT and layer.scale and scale:
            low, high = min(layer.scale.low, scale.low), max(layer.scale.high, scale.high)
            found[layer.name] = replace(layer.scale, low=low, high=high)
    return found
