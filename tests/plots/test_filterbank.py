"""The fbank figure shows every value at its time and bin, aligned with the waveform figure."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from tests.plots.test_waveform import png
from workbench.plots.filterbank import column_means, filterbank_figure
from workbench.plots.waveform import waveform_figure


def image_of(figure: Figure) -> np.ndarray:
    return np.asarray(figure.axes[0].images[0].get_array())


def test_fbank_values_are_drawn_at_their_time_and_bin() -> None:
    features = np.zeros((300, 80), dtype=np.float32)
    features[200, 30] = 9.0
    figure = filterbank_figure(features, frame_shift_seconds=0.01)
    (drawn,) = figure.axes[0].images
    assert np.array_equal(image_of(figure), features.T)
    assert drawn.get_extent() == pytest.approx([0.0, 3.0, 0.0, 80.0])
    assert drawn.origin == "lower"
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("seconds", "mel bin")
    assert [text.get_text() for text in figure.texts] == ["log energy"]


@given(st.integers(1, 200), st.integers(1, 40))
def test_columns_are_means_of_neighbouring_frames(frames: int, columns: int) -> None:
    features = np.random.default_rng(frames).normal(size=(frames, 3)).astype(np.float32)
    means, covered = column_means(features, columns)
    assert len(means) <= columns
    block = covered // len(means)
    assert covered == block * len(means) >= frames > covered - block
    expected = [features[start : start + block].mean(axis=0) for start in range(0, frames, block)]
    assert np.allclose(means, expected, atol=1e-6)


def test_fbank_figure_of_two_hours_keeps_the_time_axis() -> None:
    features = np.zeros((720_000, 80), dtype=np.float32)
    features[540_000:] = 10.0
    figure = filterbank_figure(features)
    drawn = figure.axes[0].images[0]
    row = image_of(figure)[40]
    assert len(row) <= 10 * 144
    seconds = drawn.get_extent()[1] * np.flatnonzero(row > 5)[0] / len(row)
    assert seconds == pytest.approx(5400, abs=6)
    assert figure.axes[0].get_xlim() == (0, 7200)


def test_colour_scale_excludes_outliers_and_marks_its_ends() -> None:
    features = np.random.default_rng(0).normal(10, 2, size=(500, 80))
    features[0], features[1, 0] = -15.9, 900.0
    figure = filterbank_figure(features)
    norm = figure.axes[0].images[0].norm
    assert 0 < norm.vmin < 10 < norm.vmax < 20
    assert figure.axes[0].images[0].colorbar.extend == "both"


def test_fbank_time_axis_is_aligned_with_the_waveform() -> None:
    figures = [
        waveform_figure(np.zeros(16_000 * 3), 16_000, segments=[(0, 1, "a")], width=5),
        filterbank_figure(np.zeros((298, 80)), seconds=3.0, width=5),
    ]
    edges = [
        (axes.get_position().x0, axes.get_position().x1, *axes.get_xlim()) for axes in (f.axes[0] for f in figures)
    ]
    assert edges[0] == pytest.approx(edges[1])
    assert figures[1].axes[0].images[0].get_extent()[1] == pytest.approx(2.98)


@pytest.mark.parametrize("width", [2.6, 10.0])
@pytest.mark.parametrize("value", [-15.9, 0.0, 20.3])
def test_colour_bar_and_its_label_fit_even_for_constant_values(width: float, value: float) -> None:
    figure = filterbank_figure(np.full((50, 80), value), width=width)
    assert png(figure)[..., 3].any()
    figure.draw_without_rendering()
    scale = figure.axes[1]
    boxes = [label.get_window_extent() for label in scale.get_xticklabels() if label.get_text()]
    low, high = scale.get_xlim()
    boxes = [box for tick, box in zip(scale.get_xticks(), boxes, strict=True) if low <= tick <= high]
    assert len(boxes) >= 2
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    name = figure.texts[0].get_window_extent()
    assert figure.bbox.x0 <= name.x0 and name.x1 < scale.get_window_extent().x0


@pytest.mark.parametrize("features", [np.zeros((0, 80)), np.full((5, 80), np.nan)])
def test_empty_features_are_labelled(features: np.ndarray) -> None:
    figure = filterbank_figure(features)
    assert [text.get_text() for text in figure.axes[0].texts] == ["no frames"]
    assert png(figure)[..., 3].any()


def test_nan_values_are_drawn_transparent() -> None:
    features = np.random.default_rng(0).normal(size=(100, 80))
    features[50:] = np.nan
    image = png(filterbank_figure(features))
    row = image[image.shape[0] * 5 // 8]
    assert row[400, 3] == 255 and row[1100, 3] == 0


def test_wrong_arrays_are_refused() -> None:
    for shape in ((80,), (5, 0), (1, 5, 80)):
        with pytest.raises(ValueError, match="expected features"):
            filterbank_figure(np.zeros(shape))
    with pytest.raises(ValueError, match="positive frame shift"):
        filterbank_figure(np.zeros((5, 80)), frame_shift_seconds=0.0)
