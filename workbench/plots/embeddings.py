"""Plots of embeddings: their values, the norms of their vectors, and their position among a model's own vectors.

Takes arrays, returns matplotlib Figures. This file knows no models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbench.plots import style
from workbench.plots.stages import HEIGHT_INCHES, WIDTH_INCHES, array_figure, shrunk

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SQUARE_INCHES = 3.6  # height of the plane's figure
TOKENS_MAP = "viridis"  # from the first token to the last; both ends are visible on white and on near-black
_BAND = (5, 95)  # percentiles of a model's own vectors that limit the band
_MAX_POINTS = 4000  # more points would only cover each other
_WORD_INCHES = 0.9
_MAX_WORDS = 16
_GAP = 7  # dots between a token and its word
_MAX_PATH_TOKENS = 60  # tokens; a longer path crosses itself too often to be readable
_MIN_RAMP = 0.15


def values_figure(values: np.ndarray, width: float = WIDTH_INCHES, height: float = HEIGHT_INCHES) -> Figure:
    """Returns values [tokens, channels] as an image, with tokens on the horizontal axis."""
    return array_figure(values, along="token", width=width, height=height)


def norms_figure(
    norms: np.ndarray, others: np.ndarray | None = None, width: float = WIDTH_INCHES, height: float = HEIGHT_INCHES
) -> Figure:
    """Returns the norms [tokens] of vectors as a line, over a band with 90 % of a model's norms, `others` [tokens]."""
    figure, axes = style.plain_axes("token", "norm", 0.25, width, height)
    entries = [("embedding", style.SIGNAL)]
    if others is not None and others.size:
        low, middle, high = np.percentile(others, (_BAND[0], 50, _BAND[1]))
        axes.axhspan(low, high, color=style.QUIET, alpha=0.3, linewidth=0)
        axes.axhline(middle, color=style.QUIET, linewidth=0.9)
        entries.append((f"vocabulary ({_BAND[0]}–{_BAND[1]} %)", style.QUIET))
    cells = shrunk(norms.reshape(-1, 1), "largest", 1600, 1)[:, 0]
    places = np.linspace(0, max(norms.size - 1, 0), len(cells))
    marker = "." if len(cells) < 60 else ""
    axes.plot(places, cells, color=style.SIGNAL, linewidth=0.9, marker=marker, markersize=3)
    axes.set_ylim(bottom=0)
    _whole_numbers(axes, norms.size)
    style.legend(figure, entries)
    return figure


def plane_figure(
    tokens: np.ndarray,
    others: np.ndarray,
    shares: tuple[float, float],
    words: Sequence[str] = (),
    width: float = WIDTH_INCHES,
    height: float = SQUARE_INCHES,
) -> Figure:
    """Returns tokens [tokens, 2] in a plane among others [rows, 2], a model's own vectors.

    Args:
        shares: share of the variance along each axis.
        words: a word for each token, such as the nearest in the model's vocabulary; words without space are left out.
    """
    x_label, y_label = (f"component {number} ({share:.0%} of variance)" for number, share in enumerate(shares, 1))
    figure, axes = style.plain_axes(x_label, y_label, 0.42, width, height)
    drawn_rows = others[np.unique(np.linspace(0, len(others) - 1, _MAX_POINTS).astype(int))] if len(others) else others
    axes.scatter(drawn_rows[:, 0], drawn_rows[:, 1], s=4, color=style.QUIET, alpha=0.5, linewidths=0)
    if len(tokens) <= _MAX_PATH_TOKENS:
        axes.plot(tokens[:, 0], tokens[:, 1], color=style.SIGNAL, linewidth=0.5, alpha=0.5)
    order = np.arange(len(tokens))
    axes.scatter(tokens[:, 0], tokens[:, 1], s=14, c=order, cmap=TOKENS_MAP, linewidths=0, zorder=3)
    axes.margins(0.06)
    axes.locator_params(nbins=5)
    legend_end = style.legend(figure, [("vocabulary", style.QUIET)] if len(others) else [])
    _ramp(figure, len(tokens), legend_end)
    if words:
        _write(axes, tokens, words)
    return figure


def _whole_numbers(axes: Axes, count: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(-0.5, count - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))


def _ramp(figure: Figure, count: int, left: float) -> None:
    """Draws a strip above the figure in the colours of the tokens, from the first to the last."""
    width, height = figure.get_size_inches()
    last = str(count - 1)
    width_left = width - left - sum(style.text_inches(word, style.SMALL_POINTS) for word in ("token 0", last)) - 0.2
    if count < 2 or width_left < _MIN_RAMP:
        return
    strip_width, text_height = min(width_left, 0.6), height - 0.1
    for word in ("token 0", last):
        figure.text(left / width, text_height / height, word, color=style.INK, fontsize=style.SMALL_POINTS, va="center")
        left += style.text_inches(word, style.SMALL_POINTS) + 0.08
        if word != last:
            strip = figure.add_axes((left / width, (text_height - 0.04) / height, strip_width / width, 0.08 / height))
            strip.imshow(np.linspace(0, 1, 64)[None], aspect="auto", cmap=TOKENS_MAP)
            strip.set_axis_off()
            left += strip_width + 0.08


def _write(axes: Axes, tokens: np.ndarray, words: Sequence[str]) -> None:
    """Writes words beside their tokens, the outermost first; no word covers another, a token, or the frame."""
    size, figure = style.SMALL_POINTS - 1, axes.figure
    axes.autoscale_view()
    frame, points = axes.get_window_extent(), axes.transData.transform(tokens)
    half_height = size / 72 * figure.dpi / 2
    boxes = np.zeros((0, 4))
    for number in np.argsort(-((tokens - np.median(tokens, axis=0)) ** 2).sum(axis=1), kind="stable"):
        word = style.shortened(style.legible(words[number]).strip(), size, _WORD_INCHES)
        if len(boxes) == _MAX_WORDS:
            break
        if not any(char.isalnum() for char in word):  # incomplete characters, and characters that no font has
            continue
        (x, y), word_width = points[number], style.text_inches(word, size) * figure.dpi
        for left in (x + _GAP, x - _GAP - word_width):
            right, low, high = left + word_width, y - half_height, y + half_height
            is_inside = frame.x0 <= left and right <= frame.x1 and frame.y0 <= low and high <= frame.y1
            covers_word = (boxes[:, 0] < right) & (left < boxes[:, 2]) & (boxes[:, 1] < high) & (low < boxes[:, 3])
            covers_token = (left < points[:, 0]) & (points[:, 0] < right) & (low < points[:, 1]) & (points[:, 1] < high)
            if is_inside and not covers_word.any() and not covers_token.any():
                boxes = np.vstack([boxes, (left, low, right, high)])
                data_point = axes.transData.inverted().transform((left, y))
                style.place_text(
                    axes, float(data_point[0]), float(data_point[1]), word, fontsize=size, va="center", zorder=4
                )
                break
