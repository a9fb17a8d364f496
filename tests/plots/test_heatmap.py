"""The heat map of errors: each number in its cell, with a colour for within or beyond the limit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from tests.plots.test_waveform import png
from workbench.plots.heatmap import heat_figure


def cells(figure: Figure) -> dict[tuple[int, int], tuple[float, float, float]]:
    """The colour at each (stage, side)."""
    return {
        (int(patch.get_y()), int(patch.get_x())): to_rgb(patch.get_facecolor())  # type: ignore[attr-defined]
        for patch in figure.axes[0].patches
    }


def said(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_heat_map_numbers_are_in_their_cells() -> None:
    errors = np.array([[0.0, 1.5e-7], [np.nan, np.inf]])
    figure = heat_figure(["encoder.input", "logits"], ["gguf:f32", "vllm"], errors, np.full((2, 2), 1e-4))
    assert said(figure) == ["0", "1.5e-07", "not finite"]
    assert set(cells(figure)) == {(0, 0), (0, 1), (1, 1)}
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["encoder.input", "logits"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["gguf:f32", "vllm"]
    assert png(figure).shape[0] > 50  # it draws without a warning


@given(st.floats(1e-12, 1e12), st.floats(1e-9, 1.0))
def test_heat_map_colour_is_blue_within_the_limit_and_red_beyond(times: float, limit: float) -> None:
    figure = heat_figure(["a"], ["b"], np.array([[times * limit]]), np.array([[limit]]))
    red, _, blue = cells(figure)[0, 0]
    if times < 0.9:
        assert blue > red
    if times > 1.1:
        assert red > blue


def test_any_error_exceeds_a_limit_of_zero() -> None:
    figure = heat_figure(["a", "b"], ["c"], np.array([[0.0], [1e-9]]), np.zeros((2, 1)))
    (red, _, blue), (red_below, _, blue_below) = (cells(figure)[row, 0] for row in (0, 1))
    assert blue > red and red_below > blue_below


def test_more_rows_make_the_picture_taller() -> None:
    heights = [
        heat_figure([f"layer {n}" for n in range(count)], ["a"], np.ones((count, 1)), np.ones((count, 1)))
        .get_size_inches()[1]
        for count in (1, 2, 40)
    ]  # fmt: skip
    assert heights[0] < heights[1] < heights[2]


def test_error_tables_of_mismatched_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="1 stages, 2 sides"):
        heat_figure(["a"], ["b", "c"], np.zeros((1, 1)), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="0 stages, 0 sides"):
        heat_figure([], [], np.zeros((0, 0)), np.zeros((0, 0)))


def test_names_are_drawn_in_fonts_that_have_their_characters() -> None:
    figure = heat_figure(["encoder.层.0"], ["手机.npz"], np.ones((1, 1)), np.ones((1, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of a character that the font lacks
        png(figure)
