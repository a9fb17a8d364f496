"""Figures as images inside HTML."""

from __future__ import annotations

import base64
import io

import matplotlib.image
import pytest
from matplotlib.figure import Figure

from tests.support.html_fragments import HOSTILE, checked, text_of
from workbench.display import Plot
from workbench.display.pictures import DOTS_PER_INCH, NO_MATPLOTLIB, picture


def test_a_plot_is_an_image_with_a_transparent_background() -> None:
    found = Plot(Figure(figsize=(3, 2), facecolor="none"), HOSTILE, HOSTILE)._repr_html_()
    [image] = checked(found).iter("img")
    pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(image.attrib["src"].partition(",")[2])), "png")
    assert pixels.shape == (2 * DOTS_PER_INCH, 3 * DOTS_PER_INCH, 4) and pixels[..., 3].max() == 0


def test_message_replaces_the_picture_when_matplotlib_is_missing() -> None:
    def draw() -> Figure:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib.figure")

    assert text_of(picture(draw, "x")) == NO_MATPLOTLIB


def test_missing_module_other_than_matplotlib_raises_an_error() -> None:
    def draw() -> Figure:
        raise ModuleNotFoundError("No module named 'workbench.x'", name="workbench.x")

    with pytest.raises(ModuleNotFoundError):
        picture(draw, "x")
