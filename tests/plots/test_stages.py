"""Figures of a stage show every value at its position, and a single wrong value in an array of any size."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.figure import Figure

from tests.plots.test_waveform import png
from workbench.plots.stages import (
    array_figure,
    curves_figure,
    difference_figure,
    distances_figure,
    error_figure,
    shrunk,
    value_limits,
)


def image_of(figure: Figure) -> np.ndarray:
    return np.ma.filled(np.asarray(figure.axes[0].images[0].get_array(), dtype=np.float64), np.nan)


def slowly(table: np.ndarray, across: int, up: int) -> tuple[np.ndarray, np.ndarray]:
    """Means, and values of the largest magnitude, of cells whose edges are evenly spread."""
    rows, columns = (
        np.linspace(0, size, min(size, most) + 1).astype(int) for size, most in zip(table.shape, (across, up))
    )
    cells = [[table[a:b, c:d] for c, d in pairwise(columns)] for a, b in pairwise(rows)]
    largest = [[cell.flat[np.abs(cell).argmax()] for cell in row] for row in cells]
    return np.array([[cell.mean() for cell in row] for row in cells]), np.array(largest)


@given(arrays(np.float32, st.tuples(st.integers(1, 30), st.integers(1, 30)), elements=st.floats(-100, 100, width=32)))
def test_downsampled_cells_are_means_or_largest_values(table: np.ndarray) -> None:
    means, largest = slowly(table.astype(np.float64), 7, 5)
    assert shrunk(table, "mean", 7, 5) == pytest.approx(means, abs=1e-9)
    assert np.abs(shrunk(table, "largest", 7, 5)) == pytest.approx(np.abs(largest))


def test_small_arrays_stay_unchanged() -> None:
    table = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
    assert np.array_equal(shrunk(table), table)
    drawn = image_of(array_figure(table))
    assert np.array_equal(drawn, table.T)


def test_single_wrong_value_among_millions_is_visible() -> None:
    reference = np.zeros((3000, 1000), np.float32)
    candidate = reference.copy()
    candidate[1234, 567] = -0.5
    drawn = image_of(difference_figure(reference, candidate))
    assert drawn.min() == -0.5 and (drawn != 0).sum() == 1
    up, across = np.argwhere(drawn)[0]
    assert across == int(1234 / 3000 * drawn.shape[1]) and up == int(567 / 1000 * drawn.shape[0])


def test_non_finite_values_are_drawn_as_nan() -> None:
    table = np.ones((20, 10), np.float16)
    table[3, 4], table[5, 6] = np.nan, np.inf
    drawn = image_of(array_figure(table))
    assert sorted(map(tuple, np.argwhere(np.isnan(drawn)))) == [(4, 3), (6, 5)]
    assert value_limits(np.full((3, 3), np.nan)) == (0.0, 1.0)
    assert png(array_figure(np.full((3, 3), np.nan))).any() and png(difference_figure(table, table)).any()


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (0, 8), (5, 0)])
def test_stage_figures_of_single_row_and_empty_arrays_are_drawn(shape: tuple[int, int]) -> None:
    table = np.zeros(shape, np.float32)
    assert png(array_figure(table)).any() and png(difference_figure(table, table)).any()


def test_errors_are_drawn_on_a_logarithmic_scale() -> None:
    figure = error_figure(np.array([1e-7, 0.0, 1e-3]), "channel")
    [line] = figure.axes[0].lines
    assert np.array_equal(np.isnan(np.asarray(line.get_ydata())), [False, True, False])
    assert figure.axes[0].get_yscale() == "log" and figure.axes[0].get_xlabel() == "channel"
    for errors in (np.zeros(3), np.zeros(0), np.array([np.inf, 1.0]), np.array([2.0])):
        assert png(error_figure(errors, "position")).any()


def test_curves_figure_draws_reference_and_candidate() -> None:
    one, other = figure_lines(curves_figure(np.arange(9.0), np.arange(9.0) + 1))
    assert np.array_equal(other - one, np.ones(9))


def figure_lines(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata()) for line in figure.axes[0].lines]


def test_distances_figure_draws_stage_names_in_fonts_that_have_their_characters() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of a character that the font lacks
        png(distances_figure(["编码器.0", "logits"], [1e-7] * 2, [1e-7] * 2, [1e-6] * 2))


def test_distances_figure_omits_zero_and_infinite_values() -> None:
    stages = [f"encoder.layers.{n}.$x^2$" for n in range(100)]
    figure = distances_figure(stages, [0.0, *[1e-7] * 99], [np.inf, *[1e-2] * 99], [1e-6] * 100)
    reference, candidate, bound = figure_lines(figure)
    assert np.isnan([reference[0], candidate[0]]).all() and np.isfinite(bound).all()
    assert 1 < len(figure.axes[0].get_xticks()) < 60
    assert png(figure).any() and png(distances_figure(["one"], [0.0], [0.0], [0.0])).any()
