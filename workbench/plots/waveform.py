"""A plot of a recording: its waveform, the spans of speech, and the text of each segment.

Takes arrays and seconds and returns a matplotlib Figure. Knows neither files nor models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL_INCHES = 0.28  # space above the waveform for labels
_LABEL_GAP_INCHES = 0.08  # between two of them
_MIN_RANGE = 0.02  # of full scale; silence is drawn flat, not as noise that fills the whole height


def waveform_figure(
    samples: np.ndarray,
    sample_rate: int,
    voiced: Sequence[tuple[float, float]] = (),
    segments: Sequence[tuple[float, float, str]] = (),
    width: float = style.WIDTH_INCHES,
    height: float = 2.0,
) -> Figure:
    """Returns the waveform of `samples` [samples], float in -1 ... 1 or int16, `width` × `height` inches.

    `voiced` are spans (start, end) in seconds to shade. `segments` (start, end, text) are written above, each shortened
    to its own space. No sample is skipped: a column of the figure shows the least and the greatest of its samples, so a
    click an hour into a recording is visible. NaN values leave gaps.

    Raises `ValueError` if `samples` is not one-dimensional or the rate is not positive.
    """
    if samples.ndim != 1 or sample_rate <= 0:
        raise ValueError(f"expected samples [n] and a positive rate, got shape {samples.shape} at {sample_rate} Hz")
    seconds = len(samples) / sample_rate
    figure = style.new_figure(width, height)
    has_labels = any(text.strip() for _, _, text in segments)
    axes = style.time_axes(figure, _LABEL_INCHES if has_labels else 0.1, seconds)
    inner_width = width - style.LEFT_INCHES - style.RIGHT_INCHES

    times, low, high = envelope(samples, round(inner_width * style.DOTS_PER_INCH))
    times = times / sample_rate
    is_voiced = np.zeros(len(times), dtype=bool)
    for start, end in voiced:
        is_voiced |= (times >= start) & (times <= end)
    bars = [(start, end - start) for start, end in voiced]
    axes.broken_barh(bars, (0, 1), transform=axes.get_xaxis_transform(), color=style.SIGNAL, alpha=0.13, linewidth=0)
    line_style = {"step": "mid", "linewidth": 0.6, "zorder": 2}
    fill: Any = axes.fill_between
    if not voiced or is_voiced.any():
        fill(times, low, high, where=is_voiced if voiced else None, color=style.SIGNAL, **line_style)
    if voiced and not is_voiced.all():
        fill(times, low, high, where=~is_voiced, color=style.QUIET, **line_style)
    _label_segments(axes, segments, seconds, inner_width)

    finite = np.concatenate([low, high])
    finite = np.abs(finite[np.isfinite(finite)])
    peak = max(float(finite.max(initial=0.0)), _MIN_RANGE)
    axes.set_ylim(-1.08 * peak, 1.08 * peak)
    axes.locator_params(axis="y", nbins=4, symmetric=True)
    style.label(axes, y="amplitude")
    if not len(samples):
        axes.set_xticks([])
        style.place_text(axes, 0.5, 0.5, "no samples", transform=axes.transAxes, ha="center", va="center")
    return figure


def envelope(samples: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns middle, least and greatest sample of at most `columns` chunks of equal length (the last may be shorter).

    Middles are positions in samples; integer samples are scaled to -1 ... 1. All three are [chunks].
    """
    scale = 1 / (1 << 15) if samples.dtype.kind == "i" else 1.0
    if not len(samples):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    block = -(-len(samples) // max(columns, 1))
    starts = np.arange(0, len(samples), block)
    middles = (starts + np.minimum(starts + block, len(samples))) / 2
    return middles, np.minimum.reduceat(samples, starts) * scale, np.maximum.reduceat(samples, starts) * scale


def _label_segments(axes: Axes, segments: Sequence[tuple[float, float, str]], seconds: float, inches: float) -> None:
    """Writes texts above the waveform, each from its segment's start up to the next one, and a tick at each start."""
    from matplotlib.transforms import ScaledTranslation

    labels = sorted((start, text) for start, _, text in segments if text.strip())
    axis_transform = axes.get_xaxis_transform()  # x in seconds, y as share of the height
    figure = axes.get_figure(root=True)
    assert figure is not None
    shift = ScaledTranslation(_LABEL_GAP_INCHES / 2, 0, figure.dpi_scale_trans)
    label_starts = []
    for index, (start, text) in enumerate(labels):
        next_start = labels[index + 1][0] if index + 1 < len(labels) else seconds
        label_inches = (next_start - start) / max(seconds, 1e-3) * inches - _LABEL_GAP_INCHES
        if style.place_text(axes, start, 1.03, text, label_inches, transform=axis_transform + shift, va="bottom"):
            label_starts.append(start)
    axes.vlines(label_starts, 1.0, 1.12, transform=axis_transform, color=style.ACCENT, linewidth=1, clip_on=False)
