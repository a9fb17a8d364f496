"""A plot of codec streams: a row for each stream, a column for each position, a colour for each code.

Takes an array and returns a matplotlib Figure. Neighbouring codes are not similar, so colours only distinguish codes
and have no order. Empty places of the delay pattern stay transparent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = "turbo"
_TOP_INCHES, _STREAM_INCHES = 0.12, 0.16
_SPREAD = 0.6180339887  # multiples of the golden ratio spread evenly over 0 ... 1


def codes_figure(
    codes: np.ndarray, seconds: float | None = None, width: float = style.WIDTH_INCHES, height: float | None = None
) -> Figure:
    """Returns the image of codes [rows, streams], whole numbers; those below 0 are empty places.

    Stream 0 is the lowest row. The horizontal axis counts rows, or seconds if `seconds`, the total length, is given.

    Raises `ValueError` for another shape or type.
    """
    if codes.ndim != 2 or codes.dtype.kind not in "iu":
        raise ValueError(f"expected whole numbers [rows, streams], got {codes.dtype} {codes.shape}")
    rows, streams = codes.shape
    height = height or _TOP_INCHES + style.BOTTOM_INCHES + _STREAM_INCHES * max(streams, 2)
    x_label = "row" if seconds is None else "seconds"
    figure, axes = style.plain_axes(x_label, "stream", _TOP_INCHES, width, height)
    if not codes.size:
        style.place_text(axes, 0.5, 0.5, "no codes", transform=axes.transAxes, ha="center", va="center")
        return figure
    places = np.ma.masked_where(codes < 0, codes * _SPREAD % 1.0)
    end = rows if seconds is None else seconds
    axes.imshow(
        places.T,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap=COLOURS,
        vmin=0.0,
        vmax=1.0,
        extent=(0.0, end, -0.5, streams - 0.5),
    )
    axes.set_yticks(range(0, streams, max(1, streams // 8)))
    return figure
