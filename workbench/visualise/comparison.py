"""Two pictures of one view: side by side on one time axis with the same colours, and their difference.

Works on pictures of any two models, runtimes or types of weights. This file opens no model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workbench.core.errors import BadInput
from workbench.plots.layers import FLAT, Layer, Scale, diverging_scale
from workbench.visualise.picture import Picture
from workbench.visualise.shared_cells import shared_cells

COMPARED = ("image", "lines", "bars", "table")
"""Kinds of layers that have a difference, cell by cell."""


def check_comparable(first: Picture, second: Picture) -> None:
    """Raises `BadInput` for pictures of two different views."""
    if first.view != second.view:
        raise BadInput(f"pictures of {first.view} and of {second.view} are given; expected two of one view")


def difference(first: Picture, second: Picture) -> Picture:
    """Returns `second` minus `first`, layer by layer, with colours that are white at 0.

    Layers without cells in common are left out, and a note says why. Raises `BadInput` for pictures of two views, and
    where no layer can be compared.
    """
    check_comparable(first, second)
    second_layers = {layer.name: layer for layer in second.layers}
    layers, notes = [], []
    for layer in first.layers:
        counterpart = second_layers.get(layer.name)
        if layer.kind not in COMPARED or layer.over:
            continue
        if counterpart is None:
            notes.append(f"only the first has {layer.title}")
            continue
        try:
            cells = shared_cells(layer, counterpart)
        except BadInput as error:
            notes.append(str(error))
            continue
        notes += cells.notes
        values = cells.second_values.astype(np.float64) - cells.first.values.astype(np.float64)
        coloured = layer.kind in ("image", "table")
        labels = tuple(f"{value:+.2g}" for value in values.flat) if layer.kind == "table" else layer.labels
        scale = diverging_scale("difference", values) if coloured else None
        layers.append(
            replace(cells.first, title=f"{layer.title}: difference", values=values, labels=labels, scale=scale)
        )
    if not layers:
        reason = notes[0] if notes else "this view has no values to subtract"
        raise BadInput(f"{first.side} and {second.side} have no difference that can be drawn: {reason}")
    return Picture(
        view=first.view,
        model=first.model,
        runtime=first.runtime,
        title=f"{first.title}: {second.side} minus {first.side}",
        sentence=first.sentence,
        layers=tuple(layers),
        seconds=first.seconds,
        tokens=first.tokens,
        notes=tuple(notes),
        quantization=first.quantization,
        changes=first.changes,
    )


def side_by_side(first: Picture, second: Picture) -> Picture:
    """Returns one picture with the layers of both and of their difference, where there is one.

    Layers of one name share the scale of their colours. Raises `BadInput` for pictures of two views.
    """
    check_comparable(first, second)
    shared = _shared_scales(first, second)
    layers = [*_prefixed_layers(first, "a", shared), *_prefixed_layers(second, "b", shared)]
    notes = [*first.notes, *(note for note in second.notes if note not in first.notes)]
    try:
        difference_picture = difference(first, second)
        layers += [replace(layer, name=f"difference_{layer.name}") for layer in difference_picture.layers]
        notes += difference_picture.notes
    except BadInput as error:
        notes.append(str(error))
    return replace(
        first,
        title=f"{first.title}: {first.side} and {second.side}",
        layers=tuple(layers),
        notes=tuple(notes),
        seconds=max(filter(None, (first.seconds, second.seconds)), default=None),
    )


def _prefixed_layers(picture: Picture, prefix: str, scales: dict[str, Scale]) -> list[Layer]:
    return [
        replace(
            layer,
            name=f"{prefix}_{layer.name}",
            title=layer.title if layer.over else f"{picture.side}: {layer.title}",
            scale=scales.get(layer.name, layer.scale),
        )
        for layer in picture.layers
    ]


def _shared_scales(first: Picture, second: Picture) -> dict[str, Scale]:
    """Returns one scale for the layers of both pictures that have the same name."""
    second_scales = {layer.name: layer.scale for layer in second.layers}
    shared = {}
    for layer in first.layers:
        scale = second_scales.get(layer.name)
        if layer.kind not in FLAT and layer.scale and scale:
            low, high = min(layer.scale.low, scale.low), max(layer.scale.high, scale.high)
            shared[layer.name] = replace(layer.scale, low=low, high=high)
    return shared
