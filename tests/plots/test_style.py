"""Plot style: colours readable on both backgrounds, texts that fit, fonts for every script."""

from __future__ import annotations

import subprocess
import sys
import warnings
from io import BytesIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.plots import style

# Of the WCAG definition: relative luminance from sRGB.
BACKGROUNDS = {"white": (255, 255, 255), "near-black": (11, 15, 25)}


def luminance(red: int, green: int, blue: int) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red / 255, green / 255, blue / 255)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    dark, light = sorted((luminance(*one), luminance(*other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize(("colour", "least"), [("INK", 4.0), ("SIGNAL", 3.0), ("QUIET", 2.4), ("ACCENT", 2.4)])
def test_colours_stand_out_on_light_and_dark(background: str, colour: str, least: float) -> None:
    code = getattr(style, colour)
    rgb = tuple(int(code[place : place + 2], 16) for place in (1, 3, 5))
    assert contrast(rgb, BACKGROUNDS[background]) >= least


@given(st.text(max_size=40), st.floats(0, 3))
def test_shortened_text_fits_and_is_a_prefix(text: str, room: float) -> None:
    text = style.legible(text)
    short = style.shortened(text, 8.0, room)
    assert style.text_inches(short, 8.0) <= room or not short or short == text
    assert text.startswith(short.removesuffix("…"))


def test_computed_text_widths_equal_those_drawn_by_matplotlib() -> None:
    figure = style.new_figure(6, 2)
    axes = style.time_axes(figure, 0.1, 1.0)
    for text in ("three seven one", "iiiiiiii", "WWWWWWW"):
        drawn = style.place_text(axes, 0.0, 0.0, text)
        assert drawn is not None
        inches = drawn.get_window_extent().width / figure.dpi
        assert style.text_inches(text, style.SMALL_POINTS) == pytest.approx(
            inches, abs=0.03
        )  # hinting moves letters by parts of a pixel


def test_every_script_is_drawn_without_a_warning() -> None:
    figure = style.new_figure(8, 2)
    axes = style.time_axes(figure, 0.1, 1.0)
    text = "今天 한국 ไทย हिन्दी Ωя é $5 a_b^{2} \\frac \U0001f3bc\x00\n\ue000 end"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = style.place_text(axes, 0.0, 0.5, text)
        figure.savefig(BytesIO(), format="png")
    assert drawn is not None
    assert drawn.get_text().endswith("□ end")
    assert "$5 a_b^{2} \\frac" in drawn.get_text()


def test_installed_cjk_fonts_are_used() -> None:
    from matplotlib.font_manager import fontManager

    cjk = {font.name for font in fontManager.ttflist if "CJK SC" in font.name or "WenQuanYi" in font.name}
    if not cjk:
        pytest.skip("no Chinese font is installed on this machine")
    assert len(style.families("今天")) == 2
    assert style.legible("今天") == "今天"
    assert style.text_inches("今天", 72.0) == pytest.approx(2.0, abs=0.05)  # one em each


def test_characters_without_an_installed_font_become_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "_installed", list)
    style.families.cache_clear()
    assert style.legible("a今b\u200bc") == "a□bc"
    style.families.cache_clear()


def test_text_that_does_not_fit_is_omitted() -> None:
    axes = style.time_axes(style.new_figure(6, 2), 0.1, 1.0)
    assert style.place_text(axes, 0, 0, "three seven", max_inches=0.1) is None
    assert style.place_text(axes, 0, 0, "three seven", max_inches=-1.0) is None
    assert style.place_text(axes, 0, 0, "ok", max_inches=0.3) is not None
    assert not [text for text in axes.texts if text.get_text() != "ok"]


@pytest.mark.parametrize(
    ("seconds", "width", "first", "name"),
    [
        (60.0, 10, "0", "seconds"),
        (400.0, 4, "0:00", "minutes:seconds"),
        (7200.0, 10, "0:00:00", "hours:minutes:seconds"),
        (90_000.0, 10, "0:00:00", "hours:minutes:seconds"),
    ],
)
def test_time_tick_labels_do_not_overlap(seconds: float, width: float, first: str, name: str) -> None:
    figure = style.new_figure(width, 2)
    axes = style.time_axes(figure, 0.1, seconds)
    figure.draw_without_rendering()
    labels = [tick for tick in axes.get_xticklabels() if 0 <= tick.get_position()[0] <= seconds]
    boxes = [tick.get_window_extent() for tick in labels]
    assert (labels[0].get_text(), axes.get_xlabel()) == (first, name)
    assert len(labels) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert boxes[-1].x1 <= width * figure.dpi


def test_clock_formats_minutes_and_hours() -> None:
    assert [style.clock(61), style.clock(3600 + 125.4, hours=True)] == ["1:01", "1:02:05"]


def test_too_narrow_figure_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1 inches wide .* at least 2\.5"):
        style.new_figure(1, 1)


def test_plot_modules_import_matplotlib_lazily_and_never_pyplot() -> None:
    code = (
        "import sys, numpy as np\n"
        "from workbench.plots.filterbank import filterbank_figure\n"
        "from workbench.plots.waveform import waveform_figure\n"
        "print('matplotlib' in sys.modules)\n"
        "waveform_figure(np.zeros(9), 9); filterbank_figure(np.zeros((9, 80)))\n"
        "print('matplotlib.pyplot' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
