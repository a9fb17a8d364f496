"""The common style of all plots: size, margins, colours, time axis and fonts, so that plots below each other align.

The colours are readable on white and on near-black, with a transparent background. Figures are made without pyplot, so
requests share nothing. This file knows neither audio nor models.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

INK = "#747b86"  # text and axes: contrast above 4 on white and on near-black
SIGNAL = "#3f8fd2"  # the subject of the figure
QUIET = "#9aa3af"  # its parts without findings
ACCENT = "#e08a3c"  # marks over the signal
COLOUR_MAP = "magma"  # for energies: perceptually uniform, dark to light, safe for colour-blind readers

TEXT_POINTS = 9.0
SMALL_POINTS = 8.0
DOTS_PER_INCH = 144
LEFT_INCHES, RIGHT_INCHES, BOTTOM_INCHES = 0.64, 0.3, 0.45  # margins of all figures with a time axis
WIDTH_INCHES = 10.0
NARROWEST_INCHES = 2.5

_TICK_INCHES = 0.7  # space for one tick label on the time axis
_MISSING_GLYPH = "\u25a1"  # drawn for a character that no installed font has
_LATIN = "DejaVu Sans"  # comes with matplotlib
# Fonts with Chinese, Japanese and Korean on Linux, macOS and Windows, then fonts for other scripts.
_FALLBACKS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Hiragino Sans GB",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Malgun Gothic",
    "SimHei",
    "Arial Unicode MS",
    "Noto Sans Thai",
    "Noto Sans Devanagari",
    "Noto Sans",
)


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure of that size in inches with a transparent background.

    Raises `ValueError` if it is too narrow.
    """
    from matplotlib.figure import Figure

    if not width >= NARROWEST_INCHES:
        raise ValueError(f"a picture {width:g} inches wide cannot be read; expected at least {NARROWEST_INCHES:g}")
    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="none")


def time_axes(figure: Figure, top: float, seconds: float) -> Axes:
    """Returns axes over the whole figure without the common margins and `top` inches; time runs from 0 to `seconds`.

    The ticks show seconds up to two minutes, then minutes and seconds, and hours too from an hour on.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

    width, height = figure.get_size_inches()
    inner_width = width - LEFT_INCHES - RIGHT_INCHES
    axes = figure.add_axes(
        (LEFT_INCHES / width, BOTTOM_INCHES / height, inner_width / width, (height - BOTTOM_INCHES - top) / height),
        facecolor="none",
    )
    axes.tick_params(colors=INK, labelsize=SMALL_POINTS, length=3, width=0.8)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_linewidth(0.8)
    axes.set_xlim(0, max(seconds, 1e-3))
    ticks = max(3, int(inner_width / _TICK_INCHES))
    if seconds <= 120:
        axes.xaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 5, 10]))
        label(axes, "seconds")
    else:
        steps = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
        step = next((step for step in steps if seconds / step <= ticks), 3600 * -(-seconds // (3600 * ticks)))
        axes.xaxis.set_major_locator(MultipleLocator(step))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(value, hours=seconds >= 3600)))
        label(axes, "hours:minutes:seconds" if seconds >= 3600 else "minutes:seconds")
    return axes


def plain_axes(
    x: str, y: str, top: float, width: float, height: float, bottom: float = BOTTOM_INCHES
) -> tuple[Figure, Axes]:
    """Returns a figure of that size in inches, and axes over all of it without the margins, `top` and `bottom`."""
    figure = new_figure(width, height)
    inner_width = width - LEFT_INCHES - RIGHT_INCHES
    place = (LEFT_INCHES / width, bottom / height, inner_width / width, (height - bottom - top) / height)
    axes = figure.add_axes(place, facecolor="none")
    axes.tick_params(colors=INK, labelsize=SMALL_POINTS - 1, length=3, width=0.8, which="both")
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
    label(axes, x, y)
    return figure, axes


def label(axes: Axes, x: str = "", y: str = "") -> None:
    """Names the axes in the common colour; the vertical name has the same position in every figure."""
    if x:
        axes.set_xlabel(x, color=INK, fontsize=SMALL_POINTS, labelpad=2)
    if y:
        height = axes.get_position().height * axes.figure.get_size_inches()[1]  # type: ignore[union-attr]
        axes.set_ylabel(y, color=INK, fontsize=SMALL_POINTS if height > 0.9 else SMALL_POINTS - 1)
        inner_width = axes.get_position().width * axes.figure.get_size_inches()[0]  # type: ignore[union-attr]
        axes.yaxis.set_label_coords(-(LEFT_INCHES - 0.17) / inner_width, 0.5)


def colour_scale(figure: Figure, image: AxesImage, name: str, extend: str) -> None:
    """Draws a horizontal colour scale in the top margin at the right end, with its name on its left."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    width, height = figure.get_size_inches()
    length = min(1.8, (width - LEFT_INCHES - RIGHT_INCHES) / 2)
    right, bottom = width - RIGHT_INCHES, height - 0.16
    scale_axes = figure.add_axes(((right - length) / width, bottom / height, length / width, 0.08 / height))
    scale = figure.colorbar(image, cax=scale_axes, orientation="horizontal", extend=extend)
    scale.outline.set_visible(False)
    scale.ax.tick_params(colors=INK, labelsize=SMALL_POINTS - 1, length=2, width=0.6, pad=1)
    scale.locator = MaxNLocator(4 if length > 1.2 else 2, integer=True)
    scale.formatter = ScalarFormatter(useOffset=False)
    scale.update_ticks()
    figure.text(
        (right - length - 0.1) / width,
        (bottom + 0.04) / height,
        name,
        color=INK,
        fontsize=SMALL_POINTS,
        ha="right",
        va="center",
    )


def legend(figure: Figure, entries: Sequence[tuple[str, str]]) -> float:
    """Writes names in their colours side by side above the figure; returns where free space begins, in inches."""
    width, height = figure.get_size_inches()
    left = LEFT_INCHES
    for name, colour in entries:
        text = shortened(name, SMALL_POINTS, width - left)
        figure.text(left / width, 1 - 0.1 / height, text, color=colour, fontsize=SMALL_POINTS, va="center")
        left += text_inches(text, SMALL_POINTS) + 0.2
    return left


def clock(seconds: float, hours: bool = False) -> str:
    """Returns a time as `2:05`, or `1:02:05` with hours."""
    total = round(seconds)
    if hours:
        return f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}"
    return f"{total // 60}:{total % 60:02d}"


def place_text(
    axes: Axes, x: float, y: float, text: str, max_inches: float | None = None, **properties: object
) -> Text | None:
    """Writes a text at a point of the axes in fonts that have its characters, shortened with "…" to `max_inches`.

    Characters that no installed font has become boxes. `$` is a dollar sign, not mathematics. If not even two
    characters fit, writes nothing and returns None.
    """
    if max_inches is not None and max_inches <= 0:
        return None
    size = float(properties.pop("fontsize", SMALL_POINTS))  # type: ignore[arg-type]
    fitted_text = legible(text)
    if max_inches is not None:
        fitted_text = shortened(fitted_text, size, max_inches)
        if len(fitted_text) < min(3, len(text)):
            return None
    all_properties = {
        "color": INK,
        "fontsize": size,
        **font_of(fitted_text),
    } | properties
    return axes.text(x, y, fitted_text, **all_properties)


def font_of(text: str) -> dict[str, Any]:
    """Returns matplotlib's arguments for a text as it stands: fonts that have its characters, and `$` as a dollar sign.

    The text should be `legible`.
    """
    return {"fontfamily": list(families(text)), "parse_math": False}


def legible(text: str) -> str:
    """Returns the text on one line with a box for each character that no installed font has."""
    fonts = families(text)
    return "".join(
        char if char == " " or any(ord(char) in _glyphs(name) for name in fonts) else _MISSING_GLYPH
        for char in " ".join(text.split())
        if unicodedata.category(char) not in ("Cc", "Cf")
    )


def shortened(text: str, points: float, max_inches: float) -> str:
    """Returns the text, or as much of its beginning as fits into `max_inches` inches, followed by an ellipsis."""
    if text_inches(text, points) <= max_inches:
        return text
    names, width, count = families(text), text_inches("…", points), 0
    for char in text:
        width += _advance(char, names) * points / 72
        if width > max_inches:
            break
        count += 1
    return f"{text[:count].rstrip()}…" if count else ""


def text_inches(text: str, points: float) -> float:
    """Returns the width of a line of text, from the advance widths of its fonts."""
    names = families(text)
    return sum(_advance(char, names) for char in text) * points / 72


@lru_cache(maxsize=512)
def families(text: str) -> tuple[str, ...]:
    """Returns the fonts that draw the text: matplotlib's own, and installed ones for characters that it lacks."""
    fonts, missing_characters = [_LATIN], {ord(char) for char in text if char.isprintable()} - _glyphs(_LATIN)
    for name in _installed() if missing_characters else ():
        if missing_characters & _glyphs(name):
            fonts.append(name)
            missing_characters -= _glyphs(name)
    return tuple(fonts)


@lru_cache(maxsize=1)
def _installed() -> Sequence[str]:
    from matplotlib.font_manager import fontManager

    names = {font.name for font in fontManager.ttflist}
    return [name for name in _FALLBACKS if name in names]


@lru_cache(maxsize=32)
def _glyphs(family: str) -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont(family)).get_charmap())


@lru_cache(maxsize=4096)
def _advance(char: str, names: tuple[str, ...]) -> float:
    """Returns the width of a character in ems."""
    from matplotlib.font_manager import findfont, get_font

    family = next((name for name in names if ord(char) in _glyphs(name)), _LATIN)
    font = get_font(findfont(family))
    font.set_size(100, 72)
    return float(font.load_char(ord(char)).linearHoriAdvance) / 65536 / 100
