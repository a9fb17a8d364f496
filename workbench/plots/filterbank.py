"""A plot of the log-mel filter bank, with time on the horizontal axis and mel bins on the vertical.

Takes an array and returns a matplotlib Figure. Does not know where the features come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TOP_INCHES = 0.42  # space for the colour scale
# Percentiles of the values at which colours are clipped, so that one click or digital silence does not take the
# contrast from speech.
_QUIETEST_PERCENT, _LOUDEST_PERCENT = 2.0, 99.8
_MIN_RANGE = 2.0  # least range of log energy over all colours, so that a recording of one value has one colour


def filterbank_figure(
    features: np.ndarray,
    frame_shift_seconds: float = 0.01,
    seconds: float | None = None,
    width: float = style.WIDTH_INCHES,
    height: float = 2.4,
) -> Figure:
    """Returns the image of `features` [frames, mels], log energies, with time in seconds and a colour scale.

    If `seconds` is the recording's length (a little more than that of its whole frames), the time axis matches that of
    `waveform_figure` of the same width. Recordings with more frames than the figure has columns are drawn as means over
    neighbouring frames. NaN values stay transparent.

    Raises `ValueError` if `features` is not two-dimensional or the frame shift is not positive.
    """
    from matplotlib.colors import Normalize

    if features.ndim != 2 or not features.shape[1] or not frame_shift_seconds > 0:
        raise ValueError(f"expected features [frames, mels] and a positive frame shift, got {features.shape}")
    frames, mels = features.shape
    figure = style.new_figure(width, height)
    inner_width = width - style.LEFT_INCHES - style.RIGHT_INCHES
    seconds = frames * frame_shift_seconds if seconds is None else seconds
    axes = style.time_axes(figure, _TOP_INCHES, seconds)
    axes.set_ylim(0, mels)
    axes.set_yticks(range(0, mels + 1, 20) if mels > 30 else range(0, mels + 1, 10))
    style.label(axes, y="mel bin")
    image, drawn_frames = column_means(features, round(inner_width * style.DOTS_PER_INCH))
    finite = image[np.isfinite(image)]
    if not finite.size:
        axes.set_xticks([])
        style.place_text(axes, 0.5, 0.5, "no frames", transform=axes.transAxes, ha="center", va="center")
        return figure

    low, high = np.percentile(finite, [_QUIETEST_PERCENT, _LOUDEST_PERCENT])
    colour_image = axes.imshow(
        np.ma.masked_invalid(image.T),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        extent=(0.0, drawn_frames * frame_shift_seconds, 0.0, float(mels)),
        cmap=style.COLOUR_MAP,
        norm=Normalize(low, max(high, low + _MIN_RANGE)),
    )
    axes.set_xlim(0, seconds)
    axes.set_ylim(0, mels)
    extensions = {(True, True): "both", (True, False): "min", (False, True): "max", (False, False): "neither"}
    extend = extensions[bool(finite.min() < low), bool(finite.max() > high)]
    style.colour_scale(figure, colour_image, "log energy", extend)
    return figure


def column_means(features: np.ndarray, columns: int) -> tuple[np.ndarray, int]:
    """Returns means of neighbouring frames [at most `columns`, mels], and the number of frames that they cover
    together.

    The number is that of `features` rounded up to whole columns, because the last column may cover fewer frames.
    """
    block = max(1, -(-len(features) // max(columns, 1)))
    if block == 1:
        return features, len(features)
    starts = np.arange(0, len(features), block)
    sizes = np.minimum(starts + block, len(features)) - starts
    sums = np.add.reduceat(features, starts, axis=0, dtype=np.float64)
    return sums / sizes[:, None], len(starts) * block
