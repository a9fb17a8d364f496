"""A figure of one stage of a trace, or of an array, on the time axis that the trace's metadata names.

Takes an array or a `Trace` (any mapping from names to arrays), returns a matplotlib Figure. Knows no models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workbench.plots.layers import Axis, Layer, scale_of
from workbench.plots.stacked import WIDTH_INCHES, layers_figure
from workbench.trace.times import row_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROJECTIONS = ("query", "key", "value")  # stages of attention that are [rows, heads, channels]
ROWS, SECONDS = Axis("row", "rows"), Axis("seconds", "seconds")


def stage_figure(
    source: np.ndarray | Mapping[str, np.ndarray],
    stage: str = "",
    seconds: float | None = None,
    width: float = WIDTH_INCHES,
) -> Figure:
    """Returns a stage as a figure: [rows] as a line, [rows, channels] as an image, and one image for each head.

    An array of three dimensions is [heads, rows, rows]; the queries, keys and values of a trace are
    [rows, heads, channels].

    Args:
        source: an array, or a trace that has the stage.
        stage: its name; for an array, what the title says.
        seconds: the end of the time axis; by default the trace's recording, or the last row.
        width: in inches.

    Raises `KeyError` if the trace does not have the stage, and `ValueError` unless the array holds numbers in one to
    three dimensions.
    """
    meta = getattr(source, "meta", {})
    array = np.asarray(source[stage] if isinstance(source, Mapping) else source)
    if array.ndim not in (1, 2, 3) or array.dtype.kind not in "biuf" or not array.size:
        raise ValueError(f"{stage or 'the array'} is {array.dtype} of shape {array.shape}; expected numbers in rows")
    times = row_times(meta, stage)
    rows = replace(SECONDS, start=times.start, step=times.step) if times else ROWS
    title, values = stage or "values", scale_of("value", array)
    if array.ndim == 1:
        layer = Layer("stage", "lines", title, array[None], rows, Axis("value"), labels=(title,))
    elif array.ndim == 2:
        layer = Layer("stage", "image", title, array.T, rows, Axis("channel"), scale=values)
    else:
        is_projection = stage.rpartition(".")[2].startswith(PROJECTIONS)
        images = array.transpose(1, 2, 0) if is_projection else array
        names = tuple(f"head {number}" for number in range(len(images)))
        y = Axis("channel") if is_projection else replace(rows, down=True)
        layer = Layer("stage", "image", title, images, rows, y, names, scale=values)
    length = seconds if seconds is not None else meta.get("audio_seconds") if times else None
    return layers_figure([layer], length, width=width)
