"""The figure of codec streams: one colour per code, and empty cells where the delay pattern has no code."""

from __future__ import annotations

import numpy as np
import pytest

from tests.plots.test_waveform import png
from workbench.plots.codes import codes_figure


def test_codes_are_drawn_at_their_row_and_stream() -> None:
    codes = np.array([[5, -1], [5, 7], [-1, 7]])
    figure = codes_figure(codes, width=4)
    drawn = figure.axes[0].images[0].get_array()
    assert drawn is not None and drawn.shape == (2, 3)
    assert np.ma.getmaskarray(drawn).tolist() == [[False, False, True], [True, False, False]]
    assert drawn[0, 0] == drawn[0, 1] != drawn[1, 1]
    assert png(figure).shape[0] > 50


def test_neighbouring_codes_have_different_colours() -> None:
    drawn = codes_figure(np.arange(40)[:, None]).axes[0].images[0].get_array()
    assert np.abs(np.diff(np.asarray(drawn)[0])).min() > 0.3


def test_codes_figure_accepts_a_duration_and_empty_codes() -> None:
    assert codes_figure(np.zeros((4, 2), int), seconds=0.5).axes[0].images[0].get_extent()[1] == 0.5
    assert png(codes_figure(np.zeros((0, 8), int))).shape[0] > 50


@pytest.mark.parametrize("codes", [np.zeros(3, int), np.zeros((2, 2))])
def test_invalid_code_arrays_are_refused(codes: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected whole numbers"):
        codes_figure(codes)
